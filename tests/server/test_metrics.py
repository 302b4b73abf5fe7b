"""The values of /metrics follow the requests. test_docs compares their names with the documentation."""

import contextlib
import time
import unittest

from harness import ServerTest
from http_client import request_bytes

TEXT = "The harbour lay quiet. A red lantern hung above the door of the inn. "
ENDLESS = {"prompt": "Once", "ignore_eos": True, "n_predict": 100000, "kv_method": "streaming", "kv_size": 64, "stream": True}
# llama-server's and vLLM's name of each count that winnow exports itself.
SAME = {"winnow_prompt_tokens_total": ("llamacpp:prompt_tokens_total", "vllm:prompt_tokens_total"),
        "winnow_generated_tokens_total": ("llamacpp:tokens_predicted_total", "vllm:generation_tokens_total"),
        "winnow_prefill_seconds_total": ("llamacpp:prompt_seconds_total",),
        "winnow_decode_seconds_total": ("llamacpp:tokens_predicted_seconds_total",),
        "winnow_prefix_tokens_queried_total": ("vllm:prefix_cache_queries_total",),
        "winnow_prefix_tokens_hit_total": ("vllm:prefix_cache_hits_total",),
        "winnow_requests_running": ("llamacpp:requests_processing", "vllm:num_requests_running"),
        "winnow_requests_waiting": ("llamacpp:requests_deferred", "vllm:num_requests_waiting")}


class Metrics(ServerTest):
    flags = ("--metrics", "-np", "1")

    def values(self):
        """As Server.metrics; other servers' names are checked to hold the same."""
        values = self.server.metrics()
        for own, others in SAME.items():
            for other in others:
                self.assertEqual(values[other], values[own], other)
        return values

    def wait_for(self, **expected):
        """The values once winnow_requests_* are as expected. An answer can come before its request is counted."""
        deadline = time.monotonic() + 60
        while True:
            values = self.values()
            if all(values[f"winnow_requests_{name}"] == n for name, n in expected.items()):
                return values
            self.assertLess(time.monotonic(), deadline, values)
            time.sleep(0.01)

    def complete(self, body):
        """(answer, values, how much each value has grown)"""
        before = self.values()
        status, answer = self.server.post("/completion", body)
        self.assertEqual(status, 200, answer)
        after = self.wait_for(running=0, total=before["winnow_requests_total"] + 1)
        return answer, after, {name: value - before[name] for name, value in after.items()}

    @contextlib.contextmanager
    def asking(self, body):
        """A client that disconnects at the end of the block."""
        with self.server.connect() as client:
            client.sendall(request_bytes("POST", "/completion", body))
            yield

    def test_tokens_and_seconds(self):
        _, prompt = self.server.post("/tokenize", {"content": TEXT * 3 + "tokens", "add_special": True})
        n_prompt, n_reused = len(prompt["tokens"]), 0
        for _ in range(2):
            answer, after, moved = self.complete({"prompt": prompt["tokens"], "ignore_eos": True, "n_predict": 7})
            n_reused = answer["timings"]["cache_n"]
            self.assertEqual(moved["vllm:prompt_tokens_total"], n_prompt - n_reused)
            self.assertEqual(moved["vllm:generation_tokens_total"], 7)
            self.assertEqual(moved["vllm:prefix_cache_queries_total"], n_prompt)
            self.assertEqual(moved["vllm:prefix_cache_hits_total"], n_reused)
            self.assertEqual(moved["vllm:time_to_first_token_seconds_count"], 1)
            self.assertEqual(moved["vllm:time_per_output_token_seconds_count"], 6)
            self.assertGreaterEqual(after["llamacpp:n_tokens_max"], n_prompt + 6)
            for n, seconds, speed in (("prompt_tokens_total", "prompt_seconds_total", "prompt_tokens_seconds"),
                                      ("tokens_predicted_total", "tokens_predicted_seconds_total", "predicted_tokens_seconds")):
                self.assertGreater(moved[f"llamacpp:{seconds}"], 0)
                self.assertLess(moved[f"llamacpp:{seconds}"], 60)
                self.assertAlmostEqual(after[f"llamacpp:{speed}"] * after[f"llamacpp:{seconds}"] / after[f"llamacpp:{n}"], 1, 6)
        self.assertGreater(n_reused, n_prompt // 2, "the second prompt is the first one's")

    def test_prefixes_that_are_not_reused(self):
        body = {"prompt": TEXT + "prefixes", "n_predict": 1}
        self.complete(body)
        answer, _, moved = self.complete({**body, "cache_prompt": False})
        self.assertGreater(answer["timings"]["prompt_n"], 10)
        self.assertEqual(moved["vllm:prompt_tokens_total"], answer["timings"]["prompt_n"])
        self.assertEqual(moved["vllm:prefix_cache_queries_total"], 0)
        self.assertEqual(moved["vllm:prefix_cache_hits_total"], 0)

    def test_a_request_that_waits(self):
        self.wait_for(running=0, waiting=0)
        with self.asking(ENDLESS):
            busy = self.wait_for(running=1, waiting=0)
            self.assertGreater(busy["vllm:kv_cache_usage_perc"], 0)
            self.assertLess(busy["vllm:kv_cache_usage_perc"], 1)
            with self.asking({**ENDLESS, "prompt": "Twice"}), self.asking({**ENDLESS, "prompt": "Thrice"}):
                self.wait_for(running=1, waiting=2)
            self.wait_for(running=1, waiting=0)
        self.wait_for(running=0, waiting=0)


if __name__ == "__main__":
    unittest.main()
