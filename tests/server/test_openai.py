"""OpenAI's paths, with the bundled model. The unit tests check single fields."""

import concurrent.futures
import json
import math
import time
import unittest

from harness import ServerTest

HELLO = [{"role": "user", "content": "Hello"}]
GREEDY = {"temperature": 0, "max_tokens": 16}


def is_same_but_for_rounding(one, other):
    """Two greedy choices with logprobs. Without --deterministic, products with more rows are summed in another order, so answers
    may part where two tokens are almost equally likely."""
    tokens = one["logprobs"]["tokens"], other["logprobs"]["tokens"]
    parts_at = next((i for i, (a, b) in enumerate(zip(*tokens)) if a != b), None)
    if parts_at is None:
        return one["text"] == other["text"]
    top = other["logprobs"]["top_logprobs"][parts_at]
    a, b = (top.get(tokens[i][parts_at], -math.inf) for i in (0, 1))
    return abs(a - b) < 0.1  # 8-bit activations may round to a neighbouring step


class Chat(ServerTest):
    def test_answer_and_stream_say_the_same(self):
        status, answer = self.server.post("/v1/chat/completions", {"messages": HELLO, **GREEDY})
        self.assertEqual(status, 200, answer)
        message = answer["choices"][0]["message"]
        self.assertEqual(message["role"], "assistant")
        events = self.server.stream("/v1/chat/completions", {"messages": HELLO, **GREEDY,
                                                             "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], "[DONE]")
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1] if e["choices"])
        self.assertEqual(text, message["content"])
        self.assertEqual(events[-2]["choices"], [])
        self.assertEqual(events[-2]["usage"]["completion_tokens"], answer["usage"]["completion_tokens"])
        self.assertIn(events[-3]["choices"][0]["finish_reason"], ("stop", "length"))

    def test_kv_says_what_was_kept(self):
        text = "The harbour lay quiet. A red lantern hung above the door of the inn. " * 20
        body = {"messages": [{"role": "user", "content": text}], **GREEDY, "kv_method": "streaming", "kv_size": 64}
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        kv = answer["kv"]
        self.assertTrue(kv["method"].startswith("streaming"), kv)
        self.assertGreater(kv["seen"], 200)
        self.assertLessEqual(kv["kept"], 64 + 16)
        self.assertLess(kv["bytes"], kv["bytes_full"])

    def test_seed_n_and_logprobs(self):
        body = {"messages": HELLO, "max_tokens": 8, "seed": 7, "temperature": 1.5, "n": 2, "logprobs": True, "top_logprobs": 3}
        status, first = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, first)
        _, second = self.server.post("/v1/chat/completions", body)
        texts = [choice["message"]["content"] for choice in first["choices"]]
        self.assertEqual(texts, [choice["message"]["content"] for choice in second["choices"]])
        self.assertEqual(len(texts), 2)
        for entry in first["choices"][0]["logprobs"]["content"]:
            self.assertLessEqual(entry["logprob"], 0)
            self.assertEqual(len(entry["top_logprobs"]), 3)

    def test_stop_and_length(self):
        _, whole = self.server.post("/v1/completions", {"prompt": "Once upon a time", **GREEDY})
        text = whole["choices"][0]["text"]
        self.assertEqual(whole["choices"][0]["finish_reason"], "length")
        stop = text.split()[-1]
        _, cut = self.server.post("/v1/completions", {"prompt": "Once upon a time", **GREEDY, "stop": [stop]})
        self.assertEqual(cut["choices"][0]["text"], text[:text.index(stop)])
        self.assertEqual(cut["choices"][0]["finish_reason"], "stop")

    def test_many_at_once_get_what_each_gets_alone(self):
        prompts = [f"Story {i}: once upon a time" for i in range(12)]

        def ask(prompt):
            status, answer = self.server.post("/v1/completions", {"prompt": prompt, **GREEDY, "cache_prompt": False, "logprobs": 2})
            self.assertEqual(status, 200, answer)
            return answer["choices"][0]

        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(ask, prompts))
        alone = [ask(prompt) for prompt in prompts]
        for prompt, one, other in zip(prompts, together, alone):
            self.assertTrue(is_same_but_for_rounding(one, other), (prompt, one, other))
        self.assertFalse(is_same_but_for_rounding(together[0], alone[1]), "the comparison notices mixed-up answers")

    def test_no_token(self):
        """OpenAI's minimum of max_tokens is 0 for a text."""
        for echo in (False, True):
            body = {"prompt": "Once upon a time", "max_tokens": 0, "echo": echo}
            text = "Once upon a time" if echo else ""
            status, answer = self.server.post("/v1/completions", body)
            self.assertEqual(status, 200, answer)
            self.assertEqual((answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]), (text, "length"))
            self.assertEqual(answer["usage"]["completion_tokens"], 0)
            events = self.server.stream("/v1/completions", body)
            self.assertEqual("".join(event["choices"][0]["text"] for event in events[:-1]), text)
            self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")

    def test_too_long_a_prompt_says_so(self):
        status, answer = self.server.post("/v1/completions", {"prompt": "word " * 400000, "max_tokens": 4})
        self.assertEqual(status, 400, answer)
        self.assertIn("tokens", answer["error"]["message"])

    def test_disconnect_frees_the_engine(self):
        body = json.dumps({"prompt": "Once", "max_tokens": 100000, "ignore_eos": True, "stream": True}).encode()
        with self.server.connect() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.assertIn(b"200 OK", client.recv(4096))
        deadline = time.monotonic() + 20
        while True:
            _, slots = self.server.get("/slots")
            if not any(slot["is_processing"] for slot in slots):
                break
            self.assertLess(time.monotonic(), deadline, "still busy for a client that went away")
            time.sleep(0.02)

    def test_models(self):
        status, models = self.server.get("/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual(models["data"][0]["object"], "model")
        status, _ = self.server.get("/v1/models/" + models["data"][0]["id"])
        self.assertEqual(status, 200)


if __name__ == "__main__":
    unittest.main()
