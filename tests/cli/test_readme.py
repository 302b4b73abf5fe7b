"""Every command of the README runs as written, with fewer repetitions, and its C++ compiles."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from harness import SANITIZED, WINNOW

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Repetitions and samples that only cost time here.
FEWER = {"bench": ["-r", "1", "--no-warmup", "-n", "8"], "eval recall": ["--samples", "1"],
         "eval needle": ["--depths", "50", "--lengths", "600"], "probe all": ["-n", "256", "--samples", "1"]}  # fmt: skip
# Input for commands that need a text.
TEXT = "The harbour lay quiet. A red lantern hung above the door of the inn, and its code was 48213. " * 40


def commands():
    """The command lines that call winnow, without comments."""
    for line in README.splitlines():
        match = re.match(r"    winnow (.*)", line)
        if match:
            yield shlex.split(re.sub(r"\s+# .*", "", match.group(1)))


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-readme-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        shutil.copy(ROOT / "models/winnow-s-Q8_0.gguf", cls.folder / "model.gguf")
        for name in ("question.txt", "long.txt", "report.txt", "book.txt"):
            (cls.folder / name).write_text(TEXT)
        (cls.folder / "essays").mkdir()
        (cls.folder / "essays/one.txt").write_text(TEXT)
        (cls.folder / "LongBench").mkdir()
        record = {"input": "Who?", "context": TEXT[:1000], "answers": ["me"], "all_classes": ["me"], "length": 1, "_id": "1"}
        tasks = ("narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique gov_report qmsum multi_news trec triviaqa "
                 "samsum passage_count passage_retrieval_en lcc repobench-p").split()
        longbench = cls.folder / "LongBench"
        for task in tasks:
            (longbench / f"{task}.jsonl").write_text(json.dumps(record) + "\n")
        (longbench / "dataset2prompt.json").write_text(json.dumps({task: "{context}\n{input}" for task in tasks}))
        (longbench / "dataset2maxlen.json").write_text(json.dumps({task: 4 for task in tasks}))

    def test_there_are_commands(self):
        self.assertGreater(len(list(commands())), 12)

    def test_commands_run(self):
        for words in commands():
            if words[0] == "COMMAND":
                words = ["run", "--help"]
            with self.subTest(" ".join(words)):
                if words[0] == "serve":
                    self.serve(words)
                    continue
                words = words + FEWER.get(words[0], FEWER.get(" ".join(words[:2]), []))
                done = subprocess.run([WINNOW, *words], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=600, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout or words[0] in ("chat", "eval", "probe"), "nothing printed")

    def serve(self, words):
        """Starts the server, waits until it is ready, and ends it."""
        with subprocess.Popen([WINNOW, *words, "--port", "0"], cwd=self.folder, stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as server:
            try:
                lines = []
                while not any(line.startswith("ready") for line in lines):
                    lines.append(server.stderr.readline())
                    self.assertTrue(lines[-1], "ended: " + "".join(lines))
            finally:
                server.terminate()
            server.communicate(timeout=60)

    @unittest.skipIf(SANITIZED, "compiles nothing of the build")
    def test_cpp_compiles(self):
        code = re.search(r"```cpp\n(.*?)```", README, re.S).group(1)
        includes = "".join(line + "\n" for line in code.splitlines() if line.startswith("#"))
        body = "".join(line + "\n" for line in code.splitlines() if not line.startswith("#"))
        source = self.folder / "snippet.cc"
        source.write_text(f"{includes}#include <iostream>\nint main() {{\n{body}}}\n")
        done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-I", ROOT / "include", source], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
