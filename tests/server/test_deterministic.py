"""`--deterministic`: an answer is bitwise the same alone and beside others."""

import concurrent.futures
import unittest

from harness import ServerTest

WORDS = "the red lantern hung above the door of the inn and the quiet harbour slept".split()


class Deterministic(ServerTest):
    flags = ("--deterministic", "-np", 16)

    def ask(self, number):
        # Prompts of 10 to 600 tokens with a common beginning: in several blocks, and sharing steps.
        text = f"Once upon a time, story {number}: " + " ".join(WORDS[(number + i * i) % len(WORDS)] for i in range(8 + 37 * number))
        status, answer = self.server.post("/v1/completions", {"prompt": text, "temperature": 0, "max_tokens": 16, "logprobs": 3})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]

    def test_many_at_once_get_exactly_what_each_gets_alone(self):
        n = 14
        with concurrent.futures.ThreadPoolExecutor(n) as pool:
            together = list(pool.map(self.ask, range(n)))
        for number, found in enumerate(together):
            self.assertEqual(found, self.ask(number), f"prompt {number}")


if __name__ == "__main__":
    unittest.main()
