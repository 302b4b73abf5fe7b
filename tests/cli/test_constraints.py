"""run --json-schema and --grammar: the output obeys them, or the error says what is missing."""

import json
import unittest

from harness import CliTest, winnow


class Constraints(CliTest):
    def run_with(self, *flags):
        outcome = winnow("run", "-m", self.model, "-p", "once", "-n", 200, "--no-display-prompt", "--temp", 0, *flags)
        if "WINNOW_GRAMMAR=ON" in outcome.err:
            self.assert_failed(outcome, flags[0], "tools/fetch_xgrammar.sh")
            self.skipTest("this build has no grammars; the error names the option")
        return outcome

    def test_schema(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
        for flags in (("--json-schema", json.dumps(schema)), ("--json-schema-file", self.file("schema.json", json.dumps(schema)))):
            answer = json.loads(self.assert_done(self.run_with(*flags)).text)
            self.assertIn(answer, ({"a": 1}, {"a": 2}))

    def test_grammar(self):
        grammar = 'root ::= "yes" | "no" [0-9]{2}\n'
        for flags in (("--grammar", grammar), ("--grammar-file", self.file("answer.gbnf", grammar))):
            self.assertRegex(self.assert_done(self.run_with(*flags)).text, r"^(yes|no[0-9]{2})\n$")

    def test_a_grammar_that_takes_too_long(self):
        grammar = 'root ::= root root root | root root | "a"'
        self.assert_failed(self.run_with("--grammar", grammar, "--ignore-eos", "-n", 2000, "-c", 4096), "ms of computing", "expected at most")

    def test_what_is_none(self):
        self.assert_failed(self.run_with("--grammar", "root ::= x"), "--grammar", "line 1", "'x' is not defined")
        self.assert_failed(self.run_with("--json-schema", "[]"), "--json-schema", "not a JSON object")


if __name__ == "__main__":
    unittest.main()
