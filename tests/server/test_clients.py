"""Typical use of clients from PyPI (requirements.txt). A client's tests are skipped, with the reason, if it is not installed.
For Open WebUI, recorded requests are sent again."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

from harness import ServerTest

NO_GRAMMARS = "this build has no grammars (tools/fetch_xgrammar.sh, -DWINNOW_GRAMMAR=ON)"
HELLO = [{"role": "user", "content": "Hello"}]


def needs(package):
    return unittest.skipUnless(importlib.util.find_spec(package), f"Python's {package} is not installed (tests/server/venv.sh)")


@needs("openai")
class OpenAi(ServerTest):
    def setUp(self):
        import openai
        self.openai = openai
        self.client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)

    def test_chat(self):
        answer = self.client.chat.completions.create(model="any", messages=HELLO, max_tokens=8, n=2)
        self.assertEqual(len(answer.choices), 2)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertGreater(answer.usage.total_tokens, 0)

    def test_stream(self):
        stream = self.client.chat.completions.create(model="any", messages=HELLO, max_tokens=8, stream=True,
                                                     stream_options={"include_usage": True}, logprobs=True, top_logprobs=2)
        chunks = list(stream)
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)
        self.assertEqual(chunks[-1].choices, [])
        reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
        self.assertTrue(all(reason is None for reason in reasons[:-1]))
        self.assertIsNotNone(reasons[-1])

    def test_completions_models_and_extra_fields(self):
        answer = self.client.completions.create(model="any", prompt="Once upon", max_tokens=4, logprobs=1,
                                                extra_body={"kv_method": "streaming", "kv_size": 64})
        self.assertEqual(answer.object, "text_completion")
        self.assertTrue(answer.model_extra["kv"]["method"].startswith("streaming"))
        self.assertEqual(len(self.client.models.list().data), 1)

    def test_errors(self):
        with self.assertRaises(self.openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="any", messages=HELLO, temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(self.openai.BadRequestError):
            self.client.chat.completions.create(model="any", messages=[])

    def with_schema(self, schema, **more):
        return self.client.chat.completions.create(
            model="any", messages=HELLO, max_tokens=400, temperature=0,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}, **more)

    def test_schema(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}}, "required": ["a", "b"],
                  "additionalProperties": False}
        try:
            answers = [self.with_schema(schema, n=2), self.with_schema(schema, extra_body={"kv_method": "streaming", "kv_size": 64})]
        except self.openai.BadRequestError as error:
            self.assertEqual(error.param, "response_format")
            self.assertIn("WINNOW_GRAMMAR=ON", str(error))
            self.skipTest(NO_GRAMMARS)
        for choice in [choice for answer in answers for choice in answer.choices]:
            self.assertEqual(choice.finish_reason, "stop")
            value = json.loads(choice.message.content)
            self.assertEqual(set(value), {"a", "b"})
            self.assertIn(value["a"], (1, 2))
            self.assertIsInstance(value["b"], bool)
        for impossible, word in (({"type": "nosuch"}, "nosuch"), ({"$ref": "#"}, "cannot be satisfied"), ({"enum": ["v"] * 2000}, "at most"),
                                 ({"type": "string", "pattern": "(a*)*"}, "repeats a group")):
            with self.subTest(word), self.assertRaises(self.openai.BadRequestError) as caught:
                self.with_schema(impossible)
            self.assertEqual(caught.exception.param, "response_format")
            self.assertIn(word, str(caught.exception))

    def create(self, **more):
        """Requests an answer that needs grammars. In a build without them, the error names the option and the test is skipped."""
        try:
            return self.client.chat.completions.create(model="any", messages=HELLO, max_tokens=400, temperature=0, **more)
        except self.openai.BadRequestError as error:
            if "WINNOW_GRAMMAR=ON" not in str(error):
                raise
            self.skipTest(NO_GRAMMARS)

    def test_grammar(self):
        answer = self.create(extra_body={"grammar": 'root ::= "yes" | "no" [0-9]{2}'})
        self.assertRegex(answer.choices[0].message.content, r"^(yes|no[0-9]{2})$")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        with self.assertRaises(self.openai.BadRequestError) as caught:
            self.create(extra_body={"grammar": "root ::= nothing"})
        self.assertEqual(caught.exception.param, "grammar")
        self.assertIn("line 1: rule 'nothing' is not defined", str(caught.exception))

    def test_ambiguous_grammar_ends_with_an_error(self):
        with self.assertRaises(self.openai.BadRequestError) as caught:
            self.create(extra_body={"grammar": "root ::= root root root | root root | [a-z ]", "ignore_eos": True})
        self.assertIn("ms of computing", str(caught.exception))


def tool_template(call):
    """A template that takes tools and writes calls in the form `call`."""
    return ("{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
            "{% for c in m.tool_calls or [] %}" + call + "{% endfor %}{% endfor %}assistant: ")


class ForcedCalls:
    """Forced calls match their schema, in each form that models use. The servers are deterministic: a stream's call is compared with
    that of another request. No argument is without a limit: the model could write to the end of its tokens."""

    setUp = OpenAi.setUp
    create = OpenAi.create

    def check_call(self, call):
        arguments = json.loads(call.function.arguments)
        if call.function.name == "get_weather":
            self.assertEqual(set(arguments), {"city", "days"})
            self.assertIn(arguments["city"], ("Oslo", "Rome"))
            self.assertIsInstance(arguments["days"], int)
        else:
            self.assertEqual(call.function.name, "stop")
            self.assertIsInstance(arguments, dict)

    def test_forced_calls(self):
        schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 0, "maximum": 99}},
                  "required": ["city", "days"], "additionalProperties": False}
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}},
                 {"type": "function", "function": {"name": "stop"}}]
        named = {"type": "function", "function": {"name": "get_weather"}}
        answers = [self.create(tools=tools, tool_choice=named, n=2), self.create(tools=tools[:1], tool_choice="required")]
        for choice in [choice for answer in answers for choice in answer.choices]:
            self.assertEqual(choice.finish_reason, "tool_calls", choice)
            self.assertEqual(len(choice.message.tool_calls), 1)
            self.assertEqual(choice.message.tool_calls[0].function.name, "get_weather")
            self.check_call(choice.message.tool_calls[0])
        name, arguments = "", ""
        for chunk in self.create(tools=tools, tool_choice=named, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        self.assertEqual(name, "get_weather")
        self.assertEqual(arguments, answers[0].choices[0].message.tool_calls[0].function.arguments)
        with self.assertRaises(self.openai.BadRequestError) as caught:
            self.create(tools=tools, tool_choice={"type": "function", "function": {"name": "rm"}})
        self.assertEqual(caught.exception.param, "tool_choice")

    def test_several_calls(self):
        tools = [{"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "additionalProperties": False}}}]
        answer = self.create(tools=tools, tool_choice="required", parallel_tool_calls=True)
        self.assertGreaterEqual(len(answer.choices[0].message.tool_calls), 1)
        for call in answer.choices[0].message.tool_calls[:-1]:  # the last call may be cut short
            self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("stop", {}))


@needs("openai")
class HermesCalls(ForcedCalls, ServerTest):
    flags = ("--deterministic", "--chat-template", tool_template("<tool_call>{{ c | tojson }}</tool_call>"))


@needs("openai")
class Llama3Calls(ForcedCalls, ServerTest):
    flags = ("--deterministic", "--chat-template", tool_template("<|python_tag|>{{ c | tojson }}"))


@needs("openai")
class MistralCalls(ForcedCalls, ServerTest):
    flags = ("--deterministic", "--chat-template", tool_template("[TOOL_CALLS] [{{ c | tojson }}]"))


@needs("langchain_openai")
class LangChain(ServerTest):
    flags = ("--chat-template", tool_template("<tool_call>{{ c | tojson }}</tool_call>"))

    def chat(self, **more):
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(base_url=self.server.url + "/v1", api_key="none", model="any", temperature=0, max_retries=0,
                          **{"max_tokens": 8, **more})

    def test_invoke_and_stream(self):
        answer = self.chat().invoke("Hello")
        self.assertIn(answer.response_metadata["finish_reason"], ("stop", "length"))
        self.assertGreater(answer.usage_metadata["total_tokens"], 0)
        chunks = list(self.chat(stream_usage=True).stream("Hello"))
        self.assertEqual("".join(chunk.content for chunk in chunks), answer.content)
        self.assertGreater(sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata), 0)

    def test_tools(self):
        """The second turn of an agent: tools, a call and its result. A free string as an argument could be longer than max_tokens."""
        from typing import Literal

        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
        from langchain_core.tools import tool

        @tool
        def get_weather(city: Literal["Oslo", "Rome"]) -> str:
            """The weather of a city."""
            return city

        said = [HumanMessage("Oslo?"), AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": "Oslo"}, "id": "call_1"}]),
                ToolMessage("mild", tool_call_id="call_1")]
        bare, agent = self.chat(), self.chat().bind_tools([get_weather])
        alone, first = bare.invoke(said[:1]), agent.invoke(said[:1])
        self.assertGreater(first.usage_metadata["input_tokens"], alone.usage_metadata["input_tokens"] + 30, "the model reads the tool")
        answer = agent.invoke(said)
        self.assertIn(answer.response_metadata["finish_reason"], ("stop", "length", "tool_calls"))
        self.assertGreater(answer.usage_metadata["input_tokens"], first.usage_metadata["input_tokens"] + 20, "and the call")
        try:
            forced = self.chat(max_tokens=400).bind_tools([get_weather], tool_choice="any", strict=True).invoke("Hello")
        except openai_error() as error:
            self.skip_without_grammars(error)
        self.assertEqual([(call["name"], list(call["args"])) for call in forced.tool_calls], [("get_weather", ["city"])])

    def test_structured_output(self):
        from typing import Literal

        from pydantic import BaseModel

        class Verdict(BaseModel):
            harbour: Literal["quiet", "loud"]
            boats: bool

        for method in ("json_schema", "function_calling"):
            with self.subTest(method):
                try:
                    value = self.chat(max_tokens=400).with_structured_output(Verdict, method=method).invoke("Is the harbour quiet?")
                except openai_error() as error:
                    self.skip_without_grammars(error)
                self.assertIsInstance(value, Verdict)

    def skip_without_grammars(self, error):
        self.assertIn("WINNOW_GRAMMAR=ON", str(error))
        self.skipTest(NO_GRAMMARS)


def openai_error():
    import openai
    return openai.BadRequestError


@needs("litellm")
class LiteLlm(ServerTest):
    def ask(self, **more):
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # do not fetch prices from the network
        import litellm
        return litellm.completion(model="openai/any", api_base=self.server.url + "/v1", api_key="none", messages=HELLO, max_tokens=8,
                                  temperature=0, **more)

    def test_completion_and_stream(self):
        answer = self.ask()
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.choices[0].message.role, "assistant")
        chunks = list(self.ask(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, answer.choices[0].message.content)
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
        self.assertEqual(reasons, [answer.choices[0].finish_reason])
        usages = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
        self.assertEqual(usages[-1].completion_tokens, answer.usage.completion_tokens)


@needs("llm")
class Llm(ServerTest):
    def test_prompt_with_and_without_a_stream(self):
        (self.folder / "extra-openai-models.yaml").write_text(
            f"- model_id: here\n  model_name: any\n  api_base: {self.server.url}/v1\n  api_key_name: none\n")
        said = []
        for more in ([], ["--no-stream"]):
            done = subprocess.run([sys.executable, "-m", "llm", "-m", "here", "-o", "max_tokens", "8", "-o", "temperature", "0", *more,
                                   "--key", "none", "Hello"], env={**os.environ, "LLM_USER_PATH": str(self.folder)}, text=True,
                                  capture_output=True, timeout=120, stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            said.append(done.stdout)
        self.assertTrue(said[0].strip())
        self.assertEqual(said[0], said[1], "a stream says the same")


class OpenWebUi(ServerTest):
    """Requests of Open WebUI 0.12.4, recorded between it and the server. Its page offers 36 tools with each message."""

    flags = ("--api-key", "KEY")
    HEADERS = {"Authorization": "Bearer KEY", "Accept-Encoding": "gzip, deflate, br"}
    PATH = "/v1/chat/completions"
    TOOLS = [
        {"type": "function", "function": {"name": "get_current_timestamp", "description": "Get the current Unix timestamp in seconds.",
                                          "parameters": {"properties": {}, "type": "object"}}},
        {"type": "function", "function": {
            "name": "create_tasks", "description": "Create a visible task checklist for multi-step work.",
            "parameters": {"properties": {"tasks": {"items": {"properties": {
                "content": {"description": "Task description.", "type": "string"},
                "status": {"default": "pending", "enum": ["pending", "in_progress", "completed", "cancelled"], "type": "string"}},
                "required": ["content"], "type": "object"}, "type": "array"}}, "required": ["tasks"], "type": "object"}}}]
    # It sends this itself after the first answer.
    TASK = ("### Task:\nGenerate a concise title summarizing the chat history.\n### Output:\n"
            'JSON format: { "title": "your concise title here" }\n### Chat History:\n<chat_history>\n'
            "USER: Who are you?\nASSISTANT: \n</chat_history>")

    def ask(self, **more):
        return {"model": "winnow-s", "messages": [{"role": "user", "content": "Who are you?"}], "stream": False, **more}

    def test_models(self):
        models = self.server.get("/v1/models", headers=self.HEADERS)[1]["data"]
        self.assertEqual([model["id"] for model in models], ["winnow-s"])
        self.assertNotEqual(models[0]["owned_by"], "ollama", "which it would ask in another way")

    def test_message_of_its_page(self):
        for more in ({}, {"stream_options": {"include_usage": True}}):
            with self.subTest(more):
                events = self.server.stream(self.PATH, self.ask(tools=self.TOOLS, **more), headers=self.HEADERS)
                self.assertEqual(events.pop(), "[DONE]")
                choices = [choice for event in events for choice in event["choices"]]
                self.assertTrue("".join(choice["delta"].get("content", "") for choice in choices))
                self.assertEqual(choices[-1]["finish_reason"], "stop")
                self.assertEqual("usage" in events[-1], bool(more))

    def test_titles(self):
        for more in ({"max_tokens": 1000}, {}):
            status, answer = self.server.post(self.PATH, {"model": "winnow-s", "messages": [{"role": "user", "content": self.TASK}],
                                                          "stream": False, **more}, headers=self.HEADERS)
            self.assertEqual(status, 200, answer)

    def test_continue(self):
        """Its button to continue an answer, as it works for other servers and for llama.cpp's."""
        begun = {"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am a small"}]}
        said = set()
        for more in ({}, {"continue_final_message": True, "add_generation_prompt": False}):
            events = self.server.stream(self.PATH, self.ask(max_tokens=8, temperature=0, **begun, **more), headers=self.HEADERS)
            said.add("".join(choice["delta"].get("content", "") for event in events[:-1] for choice in event["choices"]))
        self.assertEqual(len(said), 1)
        self.assertNotIn("I am a small", said.pop())

    def test_settings_of_a_model(self):
        """Advanced parameters, and "custom parameters", which it passes on unchanged."""
        settings = {"max_tokens": 24, "temperature": 0.5, "top_p": 0.9, "min_p": 0.05, "frequency_penalty": 0.1, "presence_penalty": 0.1,
                    "reasoning_effort": "medium", "seed": 7, "stop": ["END"], "logit_bias": {"1": -100},
                    "kv_method": "streaming", "kv_size": 256}
        status, answer = self.server.post(self.PATH, self.ask(**settings), headers=self.HEADERS)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["kv"]["method"], "streaming")


if __name__ == "__main__":
    unittest.main()
