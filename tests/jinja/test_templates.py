"""Chat templates in the style of the common model families, rendered by Python's jinja2 and by winnow.

Also tries the templates of llama.cpp's source package (PyPI's llama-cpp-python) and of GGUF files beside the repository, if
present: LLAMA_TEMPLATES names the folder with the *.jinja files.
"""

import os
import pathlib
import struct
import unittest

import conversations
from oracle import Engine, python_render

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parents[1] / "../shared/data/models"
LLAMA = os.environ.get("LLAMA_TEMPLATES", "")


def template_in(path):
    """Returns tokenizer.chat_template of a GGUF file, or None. Reads strings and skips other values by type."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as file:
        def number(form):
            return struct.unpack("<" + form, file.read(struct.calcsize(form)))[0]

        def string():
            return file.read(number("Q"))

        if file.read(4) != b"GGUF":
            return None
        number("I"), number("Q")
        for _ in range(number("Q")):
            key, kind = string(), number("I")
            if key == b"tokenizer.chat_template" and kind == 8:
                return string().decode("utf-8")
            if kind == 8:
                string()
            elif kind == 9:
                inner, count = number("I"), number("Q")
                for _ in range(count) if inner == 8 else ():
                    string()
                if inner != 8:
                    file.seek(count * sizes[inner], 1)
            else:
                file.seek(sizes[kind], 1)
    return None


class Templates(unittest.TestCase):
    def check(self, engine, name, template):
        rendered = 0
        for case, context in conversations.contexts():
            expected = python_render(template, context, mutable=True)
            found = engine.render(template, context)
            with self.subTest(f"{name} {case}"):
                if expected[0] == "error":
                    self.assertEqual(found[0], "error", f"{found} {expected}")
                else:
                    self.assertEqual(found, expected)
                    rendered += expected[0] == "text"
        return rendered

    def test_families(self):
        paths = sorted((HERE / "templates").glob("*.jinja"))
        self.assertGreaterEqual(len(paths), 16)
        with Engine() as engine:
            for path in paths:
                # A template that always renders nothing would test nothing.
                self.assertGreater(self.check(engine, path.name, path.read_text(encoding="utf-8")), 20, path.name)

    def test_model_files(self):
        files = sorted(MODELS.rglob("*.gguf")) if MODELS.is_dir() else []
        files += sorted((HERE.parents[1] / "models").glob("*.gguf"))
        self.assertTrue(files)
        seen = set()
        with Engine() as engine:
            for path in files:
                template = template_in(path)
                if template and template not in seen:
                    seen.add(template)
                    self.assertGreater(self.check(engine, path.name, template), 20, path.name)
        self.assertTrue(seen)

    @unittest.skipUnless(LLAMA and pathlib.Path(LLAMA).is_dir(), "no templates of llama.cpp")
    def test_templates_of_llama_cpp(self):
        with Engine() as engine:
            for path in sorted(pathlib.Path(LLAMA).glob("*.jinja")):
                # Markup: Python escapes text that is joined to a `safe` text; winnow does not.
                if "functionary-medium-v3.1" not in path.name:
                    self.check(engine, path.name, path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
