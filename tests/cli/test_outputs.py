"""Output files: a command overwrites neither its inputs nor another output, and rejects a path it
cannot write before it starts. Printed text never goes to one of its files."""

import json
import os
import subprocess
import unittest

from harness import WINNOW, CliTest, winnow

TEXT = "Once upon a time there was a little girl named Lily. She loved to play with the old man. " * 12


class Outputs(CliTest):
    def setUp(self):
        self.place = self.folder / self.id().split(".")[-1]
        self.place.mkdir()
        self.text = self.put("text.txt", TEXT)

    def put(self, name, content="kept\n"):
        path = self.place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return path

    def commands(self):
        """Every output flag, with the command it belongs to."""
        m = ["-m", self.model, "-t", "1"]
        f = ["-f", self.text]
        data = ["--data", self.text, "--chunks", "1"]
        method = ["--kv-method", "streaming", "--kv-size", "16"]
        return [
            ("--trace", ["run", *m, *f, "-n", "2", *method]),
            ("--trace", ["chat", *m, "-p", "x", "-st", "-n", "2", *method]),
            ("--trace", ["perplexity", *m, *f, "-c", "64", *method]),
            ("--trace", ["bench", *m, "-p", "32", "-n", "2", "-r", "1", *method]),
            ("--kl-base", ["perplexity", *m, *f, "-c", "64"]),
            ("--save-logits", ["perplexity", *m, *f, "-c", "64"]),
            ("--report", ["compare", *m, *f, "-q", "Who?", "-n", "4", *method]),
            ("--results", ["eval", "perplexity", *m, *data]),
            ("--json", ["eval", "perplexity", *m, *data]),
            ("--report", ["eval", "perplexity", *m, *data]),
            ("--json", ["probe", "sparsity", *m, *f, "-n", "64", "--samples", "1"]),
            ("--report", ["probe", "sparsity", *m, *f, "-n", "64", "--samples", "1"]),
            ("--dump-qkv", ["probe", *m, *f, "-n", "64"]),
            ("--out", ["replay", "--in", self.text, "--method", "streaming", "--size", "8"]),
            ("--trace", ["replay", "--in", self.text, "--out", self.place / "o", "--method", "streaming", "--size", "8"]),
        ]

    def assert_refused(self, arguments, *parts, code=2, **options):
        """Rejected before anything else: nothing is loaded, no file appears or changes."""
        before = self.files()
        outcome = winnow(*arguments, **options)
        self.assertEqual(outcome.code, code, (arguments, outcome.err))
        self.assert_names(outcome.err, parts)
        self.assertNotIn("model  ", outcome.err)
        self.assertEqual(self.files(), before, arguments)

    def files(self):
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}

    def test_what_is_read_is_not_overwritten(self):
        os.symlink("text.txt", self.place / "link.txt")
        os.link(self.text, self.place / "hard.txt")
        spelled = f"{self.place}/../{self.place.name}//text.txt"
        for flag, command in self.commands():
            inputs = [self.model] if self.model in command else []
            if self.text in command:
                inputs += [self.text, self.place / "link.txt", self.place / "hard.txt", spelled]
            for path in inputs:
                self.assert_refused([*command, flag, path], flag, path, "reads")

    def test_a_history_is_no_other_file(self):
        chat = ["chat", "-m", self.model, "-p", "x", "-st"]
        for flag, path in (("-f", self.text), ("--session", self.place / "session"), ("--trace", self.place / "trace")):
            self.assert_refused([*chat, flag, path, "--history-file", path], flag, path, "--history-file")
        self.assert_refused([*chat, "--history-file", self.model], "-m", self.model)

    def test_other_inputs(self):
        base = self.put("base.kld")
        self.assert_refused(["perplexity", "-m", self.model, "--kl", base, "--save-logits", base], "--kl", base)
        self.assert_refused(["chat", "-m", self.model, "-sysf", base, "--trace", base], "-sysf", base)
        # The other parts of a split model are not named, but they are models too.
        other = self.place / "other-00002-of-00002.gguf"
        other.write_bytes(self.model.read_bytes())
        for flag, command in self.commands():
            self.assert_refused([*command, flag, other], flag, other, "a model")
        # Standard streams may be files too.
        run = ["run", "-m", self.model, "-n", "1", "--trace", self.text]
        with self.text.open("rb") as stdin:
            done = subprocess.run([WINNOW, *run], stdin=stdin, capture_output=True, check=False)
        self.assertEqual((done.returncode, b"standard input" in done.stderr), (2, True), done.stderr)
        for name, message in (("stdout", "standard output"), ("stderr", "standard error")):
            path = self.place / name
            with path.open("wb") as stream:
                subprocess.run([WINNOW, "run", "-p", "x", "-n", "1", "--trace", path], check=False, stdin=subprocess.DEVNULL,
                               **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, name: stream})
            if name == "stderr":
                self.assertIn(message, path.read_text())
            self.assertEqual(path.read_text().count("{"), 0)

    def test_outputs_are_not_data(self):
        data = self.place / "data"
        data.mkdir()
        (data / "a.txt").write_text(TEXT)
        evaluate = ["eval", "perplexity", "-m", self.model, "--data", data, "--chunks", "1"]
        (data / "b.jsonl").write_text('{"text": "' + TEXT + '"}\n')
        for path in (data / "a.txt", data / "b.jsonl"):
            self.assert_refused([*evaluate, "--results", path], "--results", "--data")
        for flag in ("--json", "--report"):
            for path in (data / "a.txt", data / "new.jsonl", data / "deeper" / "x"):
                self.assert_refused([*evaluate, flag, path], flag, "--data")
        # Results may be in the data's folder: tasks recognize them.
        for _ in range(2):
            self.assert_done(winnow(*evaluate, "--results", data / "results.jsonl"))

    def test_outputs_are_different_files(self):
        evaluate = ["eval", "perplexity", "-m", self.model, "--data", self.text]
        new, old = self.place / "new.jsonl", self.put("old.jsonl")
        for path in (new, old):
            for one, other in (("--json", "--results"), ("--report", "--results"), ("--json", "--report")):
                self.assert_refused([*evaluate, one, path, other, f"{self.place}/./{path.name}"], path.name, one, other)
        # A page has a folder of figures.
        page = ["--report", self.place / "page.html"]
        self.assert_refused([*evaluate, *page, "--json", self.place / "page"], "--report", "--json")
        self.assert_refused([*evaluate, *page, "--json", self.place / "page" / "scores.json"], "--report", "scores.json")
        self.assert_refused(["perplexity", "-m", self.model, "-f", self.text, "--kl-base", new, "--save-logits", new],
                            "--kl-base", "--save-logits")
        self.assert_refused(["replay", "--in", self.text, "--out", new, "--trace", new, "--method", "full"], "--out", "--trace")
        self.assert_refused(["probe", "kept", "-m", self.model, "-f", self.text, "--json", new, "--report", new], "--json")
        self.assert_refused([*evaluate, "--results", "-"], "--results", "not a file")

    def test_devices_may_be_shared(self):
        self.assert_done(winnow("eval", "perplexity", "-m", self.model, "--data", self.text, "--chunks", "1",
                                "--json", "/dev/null", "--results", "/dev/null"))

    def test_what_cannot_be_written_is_refused_before_the_work(self):
        wall = self.put("wall")
        for flag, command in self.commands():
            for path in ("/nowhere/deep/file", wall / "file"):
                self.assert_refused([*command, flag, path], flag, path, code=1)
            folder = self.place / "folder"
            folder.mkdir(exist_ok=True)
            self.assert_refused([*command, flag, folder], flag, folder, "directory", code=1)
        # A file exists where the page's folder of figures would be.
        self.put("page", "in the way")
        self.assert_refused(["eval", "perplexity", "-m", self.model, "--data", self.text, "--report", self.place / "page.html"],
                            "--report", "expected a folder", code=1)

    def test_a_run_that_fails_leaves_what_was_there(self):
        old = self.put("old")
        short = self.put("short.txt", "a")
        for command in (["perplexity", "-m", self.model, "-f", short, "--kl-base", old],
                        ["perplexity", "-m", self.model, "-f", short, "--trace", old],
                        ["run", "-m", self.model, "-p", "x " * 600, "-n", "1", "--trace", old],
                        ["replay", "--in", self.text, "--out", old, "--method", "streaming", "--size", "8"],
                        ["eval", "perplexity", "-m", self.model, "--data", self.place / "none", "--json", old],
                        ["probe", "sparsity", "-m", self.model, "-f", short, "--json", old]):
            before = self.files()
            self.assert_failed(winnow(*command))
            self.assertEqual(self.files(), before, command)

    def test_a_finished_run_replaces_it(self):
        for flag, command in self.commands():
            if command[0] == "replay":
                continue
            old = self.put("old", "" if flag == "--results" else "kept\n")
            self.assert_done(winnow(*command, flag, old))
            content = old.read_bytes()
            self.assertGreater(len(content), 5, command)
            self.assertNotEqual(content, b"kept\n", command)
            self.assertEqual([path for path in self.files() if path.endswith(".tmp")], [])

    def test_a_full_disk_for_one_output_takes_nothing_from_the_others(self):
        m, method = ["-m", self.model, "-t", "1"], ["--kv-method", "streaming", "--kv-size", "16"]
        session = self.place / "session"
        run = winnow("run", *m, "-f", self.text, "-n", "2", *method, "--json", "--session", session, "--session-all", "--trace", "/dev/full")
        self.assertEqual((run.code, len(run.json["tokens"])), (1, 2), run.err)
        self.assertIn("/dev/full", run.err)
        self.assertTrue(session.exists())
        scored = winnow("perplexity", *m, "-f", self.text, "-c", "64", *method, "--json", "--trace", "/dev/full")
        self.assertEqual(scored.code, 1)
        self.assertGreater(scored.json["perplexity"], 1)
        page = self.place / "page.html"
        done = winnow("eval", "perplexity", *m, "--data", self.text, "--chunks", "1", "--json", "/dev/full", "--report", page)
        self.assertEqual(done.code, 1, done.err)
        self.assertIn("/dev/full", done.err)
        self.assertTrue(page.exists())
        self.assertIn("full", done.text)
        # bench prints what it measured before a model that does not exist.
        bench = winnow("bench", "-m", f"{self.model},/none", "-t", "1", "-p", "8", "-n", "0", "-r", "1", "-o", "json")
        self.assertEqual((bench.code, len(bench.json)), (1, 1), bench.err)

    def test_closed_standard_streams_are_not_the_output(self):
        closed = "exec \"$0\" \"$@\" <&- >&- 2>&-"
        path = self.place / "out.json"
        for command in (["eval", "perplexity", "-m", self.model, "--data", self.text, "--chunks", "1", "--json", path],
                        ["probe", "sparsity", "-m", self.model, "-f", self.text, "-n", "64", "--json", path]):
            done = subprocess.run(["sh", "-c", closed, WINNOW, *map(str, command)], check=False)
            self.assertEqual(done.returncode, 0)
            json.loads(path.read_text())  # nothing but one object
        trace = self.place / "trace.jsonl"
        done = subprocess.run(["sh", "-c", closed, WINNOW, "run", "-m", self.model, "-p", "the old man", "-n", "20", "--kv-method",
                               "streaming", "--kv-size", "8", "--trace", trace], check=False)
        self.assertEqual(done.returncode, 0)
        for line in trace.read_text().splitlines():
            self.assertIn("layer", json.loads(line))


if __name__ == "__main__":
    unittest.main()
