"""A few hundred requests of `make soak`, of all kinds at once: each well-formed one gets the same answer as alone; no bytes are left."""

import collections
import contextlib
import io
import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import health
import soak
from harness import SANITIZED


class Soak(unittest.TestCase):
    def test_a_few_hundred_requests(self):
        with tempfile.TemporaryDirectory(prefix="winnow-soak-") as folder:
            model = pathlib.Path(folder) / "tiny.gguf"
            subprocess.run([os.environ["MAKE_TINY_MODEL"], model], check=True, capture_output=True)
            requests = 100 if SANITIZED else 400
            done = soak.soak(model, requests, seconds=soak.NO_LIMIT, seed=7, clients=8, n_bodies=30)
            self.assertEqual(done, requests)

    def test_requests_that_did_not_run_are_a_failure_unless_time_was_asked_for(self):
        with tempfile.TemporaryDirectory(prefix="winnow-soak-") as folder:
            model = pathlib.Path(folder) / "tiny.gguf"
            subprocess.run([os.environ["MAKE_TINY_MODEL"], model], check=True, capture_output=True)
            with mock.patch.object(soak, "run_round", return_value=collections.Counter({"answer": 3})):
                with self.assertRaisesRegex(soak.Failure, "only 6 of 10 requests ran"):
                    soak.soak(model, 10, seconds=soak.NO_LIMIT, seed=1, clients=1, n_bodies=4)
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    self.assertEqual(soak.soak(model, 10, seconds=60, seed=1, clients=1, n_bodies=4), 6)
                self.assertIn("--seconds 60 ended it after 6 of 10 requests", said.getvalue())

    def test_health_that_was_late(self):
        self.assertTrue(health.is_in_time([0.001] * 1000))
        self.assertFalse(health.is_in_time([0.001] * 999 + [1.01 * health.MAX_ONCE_S]))
        self.assertFalse(health.is_in_time([0.001] * 980 + [1.01 * health.MAX_S] * 20))
        self.assertTrue(health.is_in_time([0.001] * 990 + [1.01 * health.MAX_S] * 10))
        for n in (3, 20, 199):
            self.assertTrue(health.is_in_time([0.001] * (n - 2) + [1.01 * health.MAX_S] * 2))
            self.assertFalse(health.is_in_time([0.001] * (n - 3) + [1.01 * health.MAX_S] * 3))


if __name__ == "__main__":
    unittest.main()
