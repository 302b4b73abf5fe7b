"""A few hundred requests of `make soak`: all kinds at once, each well-formed one answered as it is alone, no byte left."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import soak
from harness import SANITIZED


class Soak(unittest.TestCase):
    def test_a_few_hundred_requests(self):
        with tempfile.TemporaryDirectory(prefix="winnow-soak-") as folder:
            model = pathlib.Path(folder) / "tiny.gguf"
            subprocess.run([os.environ["MAKE_TINY_MODEL"], model], check=True, capture_output=True)
            requests = 100 if SANITIZED else 400
            done = soak.soak(model, requests, seconds=400, seed=7, clients=8, n_bodies=30)
            self.assertEqual(done, requests)


if __name__ == "__main__":
    unittest.main()
