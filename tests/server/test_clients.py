"""What users of clients from PyPI do. Each is skipped, with the reason, where it is not installed."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest

from harness import ServerTest

HELLO = [{"role": "user", "content": "Hello"}]


def needs(package):
    return unittest.skipUnless(importlib.util.find_spec(package), f"Python's {package} is not installed (pip install {package})")


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
            self.skipTest("this build has no grammars (tools/fetch_xgrammar.sh, -DWINNOW_GRAMMAR=ON)")
        for choice in [choice for answer in answers for choice in answer.choices]:
            self.assertEqual(choice.finish_reason, "stop")
            value = json.loads(choice.message.content)
            self.assertEqual(set(value), {"a", "b"})
            self.assertIn(value["a"], (1, 2))
            self.assertIsInstance(value["b"], bool)
        for impossible, word in (({"type": "nosuch"}, "nosuch"), ({"$ref": "#"}, "no value"), ({"enum": ["v"] * 2000}, "at most"),
                                 ({"type": "string", "pattern": "(a*)*"}, "repeats a group")):
            with self.subTest(word), self.assertRaises(self.openai.BadRequestError) as caught:
                self.with_schema(impossible)
            self.assertEqual(caught.exception.param, "response_format")
            self.assertIn(word, str(caught.exception))


@needs("langchain_openai")
class LangChain(ServerTest):
    def test_invoke_and_stream(self):
        from langchain_openai import ChatOpenAI
        chat = ChatOpenAI(base_url=self.server.url + "/v1", api_key="none", model="any", max_tokens=8)
        answer = chat.invoke("Hello")
        self.assertIn(answer.response_metadata["finish_reason"], ("stop", "length"))
        self.assertGreater(answer.usage_metadata["total_tokens"], 0)
        self.assertGreater(len(list(chat.stream("Hello"))), 0)


@needs("litellm")
class LiteLlm(ServerTest):
    def test_completion(self):
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look at the network for prices
        import litellm
        answer = litellm.completion(model="openai/any", api_base=self.server.url + "/v1", api_key="none", messages=HELLO, max_tokens=8)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.choices[0].message.role, "assistant")


@needs("llm")
class Llm(ServerTest):
    def test_prompt(self):
        (self.folder / "extra-openai-models.yaml").write_text(
            f"- model_id: here\n  model_name: any\n  api_base: {self.server.url}/v1\n  api_key_name: none\n")
        done = subprocess.run([sys.executable, "-m", "llm", "-m", "here", "-o", "max_tokens", "8", "--key", "none", "Hello"],
                              env={**os.environ, "LLM_USER_PATH": str(self.folder)}, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
