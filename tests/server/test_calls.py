"""Calls that the model begins itself (tool_choice "auto"), in builds with grammars: after the marker they match their schema.
The model is the bundled one with <|im_start|> spelled [TOOL_CALLS], so that it writes a marker."""

import json
import unittest

from harness import ROOT, Server, ServerTest

MARKER = b"[TOOL_CALLS]"
TEMPLATE = ("{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
            "{% for c in m.tool_calls or [] %}[TOOL_CALLS] [{{ c | tojson }}]{% endfor %}{% endfor %}assistant: ")
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "maximum": 99}},
          "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
HELLO = [{"role": "user", "content": "Hello"}]


class AutoCalls(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        status, answer = cls.server.post("/completion", {"prompt": "a", "grammar": 'root ::= "b"'})
        if status == 400 and "WINNOW_GRAMMAR=ON" in answer["error"]["message"]:
            raise unittest.SkipTest("this build has no grammars (tools/fetch_xgrammar.sh, -DWINNOW_GRAMMAR=ON)")
        assert status == 200, answer
        data = (ROOT / "models/winnow-s-Q8_0.gguf").read_bytes()
        assert b"<|im_start|>" in data
        model = cls.folder / "model.gguf"
        model.write_bytes(data.replace(b"<|im_start|>", MARKER))
        cls.caller = Server("-m", model, "--chat-template", TEMPLATE)
        cls.addClassCleanup(cls.caller.stop)
        cls.marker = cls.caller.post("/tokenize", {"content": MARKER.decode(), "parse_special": True})[1]["tokens"]
        assert len(cls.marker) == 1, cls.marker

    def ask(self, calls=True, **more):
        if calls:
            more["logit_bias"] = {str(self.marker[0]): 100}  # begin a call as soon as possible
        return {"messages": HELLO, "tools": TOOLS, "max_tokens": 300, "temperature": 0, **more}

    def check(self, call):
        self.assertEqual(call["function"]["name"], "get_weather")
        arguments = json.loads(call["function"]["arguments"])
        self.assertEqual(set(arguments), {"city", "days"})
        self.assertIn(arguments["city"], ("Oslo", "Rome"))
        self.assertIsInstance(arguments["days"], int)

    def test_a_call_that_the_model_begins(self):
        status, answer = self.caller.post("/v1/chat/completions", self.ask(parallel_tool_calls=False, n=2, temperature=1, seed=7))
        self.assertEqual(status, 200, answer)
        for choice in answer["choices"]:
            self.assertEqual(choice["finish_reason"], "tool_calls", choice)
            self.assertFalse(choice["message"]["content"])
            self.assertEqual(len(choice["message"]["tool_calls"]), 1)
            self.check(choice["message"]["tool_calls"][0])

    def test_several_calls_in_a_stream(self):
        calls = {}
        for event in self.caller.stream("/v1/chat/completions", self.ask(tool_choice="auto")):
            for choice in event["choices"] if event != "[DONE]" else ():
                for part in choice["delta"].get("tool_calls", ()):
                    call = calls.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
                    for key, text in part["function"].items():
                        call["function"][key] += text
        self.assertGreater(len(calls), 1)
        for index in range(len(calls) - 1):  # the last call may be cut short
            self.check(calls[index])

    def test_text_is_what_it_would_be(self):
        asked = self.ask(calls=False, max_tokens=40, cache_prompt=False)
        status, answer = self.caller.post("/v1/chat/completions", asked)
        self.assertEqual(status, 200, answer)
        prompt = self.caller.post("/apply-template", {"messages": HELLO, "tools": TOOLS})[1]["prompt"]
        free = self.caller.post("/v1/completions", {"prompt": prompt, "max_tokens": 40, "temperature": 0, "cache_prompt": False})[1]
        self.assertEqual(answer["choices"][0]["message"]["content"].strip(), free["choices"][0]["text"].strip())
        self.assertTrue(free["choices"][0]["text"].strip())

    def test_a_schema_that_is_none(self):
        wrong = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "nosuch"}}}]
        status, answer = self.caller.post("/v1/chat/completions", self.ask(tools=wrong, max_tokens=1))
        self.assertEqual(status, 200, answer)
        self.assertIn("nosuch", answer["warning"])
        status, answer = self.caller.post("/v1/chat/completions", self.ask(tools=wrong, tool_choice="required"))
        self.assertEqual((status, answer["error"]["param"]), (400, "tool_choice"), answer)
        self.assertIn("nosuch", answer["error"]["message"])
        self.assertEqual(self.caller.post("/v1/chat/completions", self.ask(tools=wrong, tool_choice="none", max_tokens=1))[0], 200)


if __name__ == "__main__":
    unittest.main()
