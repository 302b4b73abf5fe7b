"""bench/papers: every row of a paper's page can be run or says why not, and the pages are those of what was found."""

import importlib
import json
import pathlib
import shlex
import sys
import tempfile
import unittest

from harness import CliTest, winnow

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/papers"))
PAPERS = ["treekv", "refreekv", "d2o", "hbw", "ems"]


def rows_of(paper):
    return importlib.import_module(f"rows.{paper}").ROWS


class Papers(CliTest):
    def test_every_row_runs_or_says_why_not(self):
        for paper in PAPERS:
            rows = rows_of(paper)
            self.assertEqual(len({row.name for row in rows}), len(rows))
            for row in rows:
                with self.subTest(paper=paper, row=row.name):
                    self.assertTrue(row.source and row.claim and row.number)
                    self.assertNotEqual(bool(row.commands), bool(row.cannot))
                    self.assertEqual(bool(row.commands), row.read is not None)

    def test_methods_of_the_commands_are_there(self):
        """Each is parsed: an evaluation of nothing names the first that is not known."""
        for paper in PAPERS:
            for row in rows_of(paper):
                for command in row.commands:
                    words = shlex.split(command)
                    if "--kv-method" not in words:
                        continue
                    with self.subTest(paper=paper, row=row.name):
                        methods = words[words.index("--kv-method") + 1]
                        outcome = winnow("eval", "kld", "--data", self.folder / "none", "--kv-method", methods, "--kv-size", "600")
                        self.assertNotIn("--kv-method", outcome.err)
                        self.assertIn("none", outcome.err)

    def test_pages_are_those_of_what_was_found(self):
        page = importlib.import_module("page")
        for paper in PAPERS:
            with self.subTest(paper=paper), tempfile.TemporaryDirectory() as folder:
                found = json.loads((ROOT / f"docs/papers/{paper}.json").read_text())
                again = pathlib.Path(folder) / f"{paper}.md"
                page.write_page(again, importlib.import_module(f"rows.{paper}"), found)
                self.assertEqual(again.read_text(), (ROOT / f"docs/papers/{paper}.md").read_text())


if __name__ == "__main__":
    unittest.main()
