"""Expressions and statements, each rendered by Python's jinja2 and by winnow."""

import pathlib
import unittest

from oracle import Engine, python_render

CASES = pathlib.Path(__file__).with_name("expressions.txt")
CONTEXT = {
    "s": "Hello, World", "empty": "", "text": " two  words\n", "u": "Grüße 世界 🌍", "n": 7, "neg": -7, "z": 0, "f": 2.5,
    "big": 1e21, "small": 1.5e-7, "yes": True, "no": False, "nothing": None, "xs": [3, 1, 2], "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "x", "items": [1], "nested": {"k": [1, {"m": "deep"}]}}, "e": {}, "el": [],
    "users": [{"name": "Bo", "age": 30, "ok": True}, {"name": "al", "age": 25, "ok": False}, {"name": "Cy", "age": 30}],
    "mixed": [1, "a", 2.5, None, True, [1], {"k": "v"}], "html": "<a href='x'>&\"</a>", "nested": [[1, 2], [3, [4]]],
}


class Expressions(unittest.TestCase):
    def test_all_as_python(self):
        cases = [case for case in CASES.read_text(encoding="utf-8").split("\n") if case and not case.startswith("##")]
        self.assertGreater(len(cases), 240)
        with Engine() as engine:
            for case in cases:
                template = case.replace("⏎", "\n").replace("⇥", "\t")
                expected = python_render(template, CONTEXT, mutable=True)
                found = engine.render(template, CONTEXT)
                with self.subTest(case):
                    if expected[0] == "error":
                        self.assertEqual(found[0], "error", f"{found} {expected}")
                    else:
                        self.assertEqual(found, expected)


if __name__ == "__main__":
    unittest.main()
