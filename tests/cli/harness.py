"""Base class of the command line's tests: runs the binary, on a tiny model."""

import dataclasses
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

WINNOW = os.environ["WINNOW"]
SANITIZED = bool(os.environ.get("WINNOW_SANITIZE"))
SHARED = pathlib.Path(__file__).resolve().parents[2] / "../shared/data"


@dataclasses.dataclass
class Outcome:
    code: int
    out: bytes
    err: str

    @property
    def text(self):
        return self.out.decode("utf-8")  # strict: the output must be valid UTF-8

    @property
    def json(self):
        return json.loads(self.text)


def winnow(*arguments, stdin=b"", timeout=600, env=None):
    """Runs the binary; stdin is a pipe."""
    done = subprocess.run([WINNOW, *map(str, arguments)], input=stdin, capture_output=True, timeout=timeout,
                          env={**os.environ, **(env or {})}, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


class CliTest(unittest.TestCase):
    """Each class makes the tiny model once."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-cli-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.model = cls.folder / "tiny.gguf"
        subprocess.run([os.environ["MAKE_TINY_MODEL"], cls.model], check=True, capture_output=True)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def assert_done(self, outcome):
        self.assertEqual(outcome.code, 0, outcome.err)
        return outcome

    def assert_misused(self, outcome, *parts):
        self.assertEqual(outcome.code, 2, outcome.err)
        self.assertEqual(outcome.out, b"")
        self.assert_names(outcome.err, parts)

    def assert_failed(self, outcome, *parts):
        self.assertEqual(outcome.code, 1, outcome.err)
        self.assert_names(outcome.err, parts)
        self.assertEqual(outcome.err.count("error:"), 1, outcome.err)

    def assert_names(self, text, parts):
        for part in parts:
            self.assertIn(str(part), text)


def read_safetensors(path):
    """Name -> (dtype, shape, values as a tuple)."""
    data = path.read_bytes()
    n_header, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n_header])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        code = {"F32": "f", "I32": "i"}[entry["dtype"]]
        values = struct.unpack_from(f"<{(end - begin) // 4}{code}", data, 8 + n_header + begin)
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors
