"""What docs/server.md tells a newcomer to type works as it stands there, but for the port."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from harness import ROOT, Server

PAGE = (ROOT / "docs/server.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-server-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = Server("--session-path", folder.name)
        cls.addClassCleanup(cls.server.stop)

    def here(self, text):
        return text.replace("http://127.0.0.1:8080", self.server.url)

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_curl(self):
        self.assertGreaterEqual(len(blocks("sh")), 5)
        for block in blocks("sh"):
            # Each command ends where no quote is open.
            command = ""
            for line in block.splitlines(keepends=True):
                command += line
                if command.count("'") % 2 or line.rstrip().endswith("\\"):
                    continue
                with self.subTest(command):
                    done = subprocess.run(["sh", "-c", self.here(command)], capture_output=True, text=True, timeout=120, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    if "data: " in done.stdout:
                        self.assertTrue(done.stdout.endswith("data: [DONE]\n\n"), done.stdout)
                    else:
                        self.assertNotIn("error", json.loads(done.stdout))
                command = ""
            self.assertEqual(command, "")

    @unittest.skipUnless(importlib.util.find_spec("openai"), "Python's openai is not installed (pip install openai)")
    def test_python(self):
        for block in blocks("python"):
            done = subprocess.run([sys.executable, "-c", self.here(block)], capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("streaming", done.stdout)

    @unittest.skipUnless(shutil.which("haproxy"), "haproxy is not installed")
    def test_haproxy_configuration(self):
        done = subprocess.run(["haproxy", "-c", "-f", ROOT / "deploy/haproxy.cfg"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
