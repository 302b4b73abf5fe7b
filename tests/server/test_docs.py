"""The commands in docs/server.md work as written, except for the port."""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

from harness import ROOT, Server

PAGE = (ROOT / "docs/server.md").read_text(encoding="utf-8")
DEPLOY_PAGE = (ROOT / "deploy/README.md").read_text(encoding="utf-8")


def blocks(language, page=PAGE):
    return re.findall(rf"```{language}\n(.*?)```", page, re.S)


def commands(page):
    """The commands of the sh blocks. A command ends at a line end outside of quotes, without a backslash."""
    command = ""
    for line in "".join(blocks("sh", page)).splitlines(keepends=True):
        command += line
        if command.count("'") % 2 == 0 and not line.rstrip().endswith("\\"):
            yield command
            command = ""
    assert not command, command


def indented_curls(page):
    """The curl commands of blocks that are indented instead."""
    for block in re.findall(r"(?:^    .*\n)+", page, re.M):
        text = textwrap.dedent(block)
        if text.startswith("curl "):
            yield text


def documented_metrics():
    """The names, "vllm:..." and "llamacpp:...", of the table in the section about Prometheus."""
    section = PAGE.partition("\n## Prometheus\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (llama-server|vLLM) \| ([^|;]*)", section, re.M))
    names = {"llamacpp": re.findall(r"`(\w+)`", rows["llama-server"]), "vllm": re.findall(r"`(\w+)`", rows["vLLM"])}
    return {f"{prefix}:{name}" for prefix, of_server in names.items() for name in of_server}


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-server-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = Server("--session-path", folder.name, "--metrics")
        cls.addClassCleanup(cls.server.stop)

    def here(self, text):
        return text.replace("http://127.0.0.1:8080", self.server.url)

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_curl(self):
        asked = [command for command in commands(PAGE) if command.startswith("curl ")]
        self.assertGreaterEqual(len(asked), 10)
        for command in asked:
            with self.subTest(command):
                done = subprocess.run(["sh", "-c", self.here(command)], capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                if "data: " in done.stdout:
                    self.assertTrue(done.stdout.endswith("data: [DONE]\n\n"), done.stdout)
                else:
                    self.assertNotIn("error", json.loads(done.stdout))

    @unittest.skipUnless(shutil.which("curl"), "curl is not installed")
    def test_curl_with_a_grammar(self):
        asked = list(indented_curls(PAGE.partition("\n## Constrained answers\n")[2].partition("\n## ")[0]))
        self.assertEqual(len(asked), 1, "one example; another would need a check of its own here")
        done = subprocess.run(["sh", "-c", self.here(asked[0])], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        if "WINNOW_GRAMMAR=ON" in str(answer.get("error")):
            self.skipTest("this build has no grammars (tools/fetch_xgrammar.sh, -DWINNOW_GRAMMAR=ON)")
        self.assertIn(answer.get("content"), (" yes", " no"), answer)
        self.assertEqual(answer["stop_type"], "eos")

    def test_metrics_are_those_of_the_table(self):
        """Of other servers' names; a name has its TYPE and at least one sample, vLLM's with model_name."""
        status, _, text = self.server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        text = text.decode()
        served = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.M))
        documented = documented_metrics()
        self.assertGreater(len(documented), 15)
        self.assertEqual({name for name in served if not name.startswith("winnow_")}, documented)
        samples = re.findall(r"^([^#\s{]+)(\{[^}]*\})? \S+$", text, re.M)
        self.assertEqual(len(samples), len([line for line in text.splitlines() if not line.startswith("#")]))
        base = {name: name if name in served else re.sub("_(bucket|sum|count)$", "", name) for name, _ in samples}
        self.assertEqual(set(base.values()), served)
        for name, labels in samples:
            self.assertEqual('{model_name="' in labels, name.startswith("vllm:"), name)

    def test_commands_that_serve(self):
        """In a folder that has only the model, with all servers of the page running at once."""
        for page, n in ((PAGE, 2), (DEPLOY_PAGE, 3)):
            lines = [command for command in commands(page) if not command.startswith(("curl ", "haproxy "))]
            self.assertEqual(len(lines), n)
            with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder, contextlib.ExitStack() as servers:
                subprocess.run([os.environ["MAKE_TINY_MODEL"], pathlib.Path(folder) / "model.gguf"], check=True, capture_output=True)
                for line in lines:
                    self.assertRegex(line, r"^winnow serve ")
                    flags = re.sub(r"--port \d+", "", line.replace("\\\n", "").rstrip("&\n ").removeprefix("winnow serve "))
                    with self.subTest(line):
                        server = servers.enter_context(Server(*shlex.split(flags), cwd=folder))
                        self.assertEqual(server.get("/health"), (200, {"status": "ok"}), server.log)
                        if "--session-path sessions/" in line:
                            self.assertTrue((pathlib.Path(folder) / "sessions").is_dir())

    def test_make_serve_is_where_the_demo_and_the_page_say_it_is(self):
        self.assertRegex((ROOT / "Makefile").read_text(encoding="utf-8"), r"(?m)^serve: ")
        for text in (PAGE, (ROOT / "tools/demo.sh").read_text(encoding="utf-8").rstrip().removesuffix("TEXT").splitlines()[-1]):
            self.assertIn("make serve", text)

    @unittest.skipUnless(importlib.util.find_spec("openai"), "Python's openai is not installed (tests/server/venv.sh)")
    def test_python(self):
        for block in blocks("python"):
            done = subprocess.run([sys.executable, "-c", self.here(block)], capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("streaming", done.stdout)


if __name__ == "__main__":
    unittest.main()
