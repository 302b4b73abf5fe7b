"""Random templates, rendered by Python's jinja2 and by winnow. WINNOW_JINJA_SEED and WINNOW_JINJA_CASES set the seed and the number."""

import os
import random
import unittest

from oracle import Engine, python_render

SEED = int(os.environ.get("WINNOW_JINJA_SEED", "25"))
CASES = int(os.environ.get("WINNOW_JINJA_CASES", "2000"))

NAMES = ["s", "t", "u", "n", "m", "f", "yes", "nothing", "xs", "words", "d", "users", "nested", "missing", "empty", "x", "y"]
STRINGS = ["'a'", "'role'", "''", "' x '", "'b,c'", "\"it's\"", "'\\n'", "'é'", "'10'", "'k'", "'user'", "'%s'", "'<|im_end|>'", "'Ab cD'"]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "10", "2.5", "0.5", "1e3"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable",
         "true", "false", "odd", "even", "lower", "upper"]
TESTS_WITH = ["eq", "ne", "lt", "gt", "le", "ge", "in", "divisibleby", "equalto", "sameas"]
FILTERS = ["trim", "length", "upper", "lower", "title", "capitalize", "first", "last", "list", "string", "int", "float", "abs",
           "reverse", "sort", "unique | list", "join", "tojson", "e", "sum", "min", "max", "wordcount", "indent", "items | list",
           "dictsort", "urlencode", "round", "tojson(indent=2)", "default('z')", "default('z', true)", "join(', ')",
           "replace('a', 'bb')", "batch(2) | list", "map('string') | list", "map('upper') | join('-')", "select | list",
           "reject('none') | list", "map(attribute='k') | list", "selectattr('k') | list", "selectattr('k', 'defined') | list",
           "sort(reverse=true)", "sort(attribute='k')", "center(7)", "truncate(5, true, '.', 0)", "tojson(sort_keys=true)",
           "slice(2) | list", "groupby('k') | list", "indent(2, true)", "trim('a ')", "reverse | list"]
METHODS = ["strip()", "upper()", "lower()", "title()", "split()", "split(',')", "startswith('a')", "endswith('d')", "replace('a', '')",
           "find('b')", "count('a')", "items() | list", "keys() | list", "values() | list", "get('k')", "get('zz', 1)", "lstrip('a')",
           "rstrip()", "capitalize()", "isdigit()", "splitlines()", "partition(',')", "join(['p', 'q'])", "index('a')", "format(1, 2)",
           "rsplit(',', 1)", "zfill(4)", "isupper()", "isalpha()", "removeprefix('a')"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "**"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, options):
        return self.random.choice(options)

    def chance(self, share):
        return self.random.random() < share

    def expression(self, depth):
        r = self.random.random()
        if depth <= 0 or r < 0.25:
            return self.pick([self.pick(NAMES), self.pick(NAMES), self.pick(STRINGS), self.pick(NUMBERS), self.pick(["true", "none", "[]", "{}"])])
        inner = self.expression(depth - 1)
        if r < 0.42:
            return f"({inner} {self.pick(OPERATORS)} {self.expression(depth - 1)})"
        if r < 0.5:
            return f"{inner} {self.pick(OPERATORS)} {self.expression(depth - 1)}"
        if r < 0.62:
            return f"({inner}) | {self.pick(FILTERS)}"
        if r < 0.68:
            return f"({inner}).{self.pick(METHODS)}"
        if r < 0.74:
            negated = "not " if self.chance(0.3) else ""
            if self.chance(0.6):
                return f"({inner}) is {negated}{self.pick(TESTS)}"
            return f"({inner}) is {negated}{self.pick(TESTS_WITH)} {self.pick(STRINGS + NUMBERS + ['xs'])}"
        if r < 0.8:
            index = self.pick(["0", "-1", "1", "'k'", "'role'", "1:", ":-1", "::-1", "1:3", "::2", ":0", "n"])
            return f"({inner})[{index}]"
        if r < 0.85:
            return f"({inner} if {self.expression(depth - 1)}" + (f" else {self.expression(depth - 1)})" if self.chance(0.7) else ")")
        if r < 0.89:
            return "[" + ", ".join(self.expression(depth - 1) for _ in range(self.random.randint(0, 3))) + "]"
        if r < 0.92:
            return "{'k': " + inner + ", 'role': " + self.expression(depth - 2) + "}"
        if r < 0.95:
            return f"not {inner}"
        if r < 0.97:
            return f"-({inner})"
        return f"({inner}).{self.pick(['k', 'role', 'items', 'x'])}" if self.chance(0.7) else f"range({self.pick(NUMBERS)}) | list"

    def tag(self, text):
        open_sign = self.pick(["", "", "-", "-", "+"])
        close_sign = self.pick(["", "", "-", "+"])
        return "{%" + open_sign + " " + text + " " + close_sign + "%}"

    def text(self):
        return self.pick(["", " ", "\n", "a", " b\n", "\n  ", "<|x|>\n", "  \n\n", "{# c #}", "{#- c -#}\n", "é"])

    def block(self, depth):
        r = self.random.random()
        if depth <= 0 or r < 0.35:
            sign, end = self.pick(["", "-"]), self.pick(["", "-"])
            return "{{" + sign + " " + self.expression(3) + " " + end + "}}"
        body = self.body(depth - 1)
        if r < 0.5:
            other = self.tag("else") + self.body(depth - 1) if self.chance(0.4) else ""
            more = self.tag("elif " + self.expression(2)) + self.body(depth - 1) if self.chance(0.3) else ""
            return self.tag("if " + self.expression(2)) + body + more + other + self.tag("endif")
        if r < 0.66:
            target, source = self.pick([("x", "xs"), ("x", "words"), ("x, y", "d.items()"), ("x", "users"), ("x", self.expression(2))])
            condition = f" if {self.expression(2)}" if self.chance(0.25) else ""
            extra = self.pick(["", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.length }}", "{% if loop.first %}{% continue %}{% endif %}",
                               "{% if loop.index > 2 %}{% break %}{% endif %}", "{{ loop.previtem }}", "{{ loop.cycle('p', 'q') }}"])
            other = self.tag("else") + self.body(depth - 1) if self.chance(0.2) else ""
            return self.tag(f"for {target} in {source}{condition}") + extra + body + other + self.tag("endfor")
        if r < 0.76:
            return self.tag(f"set {self.pick(['x', 'y', 't'])} = {self.expression(3)}")
        if r < 0.8:
            return self.tag(f"set {self.pick(['x', 'y'])}") + body + self.tag("endset")
        if r < 0.86:
            name = self.pick(["f1", "f2"])
            return self.tag(f"macro {name}(x, y={self.expression(1)})") + body + self.tag("endmacro") + "{{ " + name + "(" + self.expression(1) + ") }}"
        if r < 0.9:
            return ("{% set ns = namespace(v=" + self.expression(1) + ") %}" + "{% for x in xs %}{% set ns.v = " +
                    self.pick(["ns.v ~ x", "x", "[ns.v, x]", "ns.v + x"]) + " %}{% endfor %}{{ ns.v }}")
        if r < 0.94:
            return self.tag("filter " + self.pick(["upper", "trim", "replace('a', 'b')", "indent(2)"])) + body + self.tag("endfilter")
        if r < 0.97:
            return self.tag("with x = " + self.expression(2)) + body + self.tag("endwith")
        # Without variables: in these blocks, jinja2 resolves variables that are set later in the template differently.
        return "{% raw %}{{ x }}{% endraw %}" + self.tag("generation") + self.text() + "{{ 1 }}" + self.tag("endgeneration")

    def body(self, depth):
        return "".join(self.text() + self.block(depth) + self.text() for _ in range(self.random.randint(1, 2)))

    def value(self, depth):
        r = self.random.random()
        if depth <= 0 or r < 0.6:
            return self.pick(["abc", "", " a b ", "Ab,cd", "user", "é世", "10", "line\nline", 0, 1, 5, -3, 2.5, 1e20, True, False, None, "a%b", "<s>"])
        if r < 0.8:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 3))]
        return {key: self.value(depth - 1) for key in self.random.sample(["k", "role", "items", "a"], self.random.randint(0, 3))}

    def context(self):
        return {"s": self.pick(["abc", "Ab cD", "a,b", "", " x\n", "éa世"]), "t": self.pick(["a", "10", "x y"]), "u": "Grüße, a",
                "n": self.pick([0, 1, 3, -2]), "m": self.pick([2, 5]), "f": self.pick([0.5, 2.0, -1.25]), "yes": True, "nothing": None,
                "xs": self.pick([[1, 2, 3], [3, 1], []]), "words": self.pick([["b", "A", "a"], ["x"]]),
                "d": self.pick([{"k": 1, "role": "user"}, {"b": "x", "a": [1]}, {}]),
                "users": [{"k": 2, "role": "a"}, {"k": 1}], "nested": self.value(3), "empty": "", "x": self.value(2)}


# Python prints an address, orders by identity, or exceeds 64 bits. None of it matters for prompts.
UNEQUAL = ("<generator object", "<built-in method", "<Macro", " at 0x", "<map object", "_reverseiterator", "<bound method")


class Random(unittest.TestCase):
    def test_as_python(self):
        outcomes = {"text": 0, "error": 0, "refused": 0}
        with Engine() as engine:
            for number in range(CASES):
                generator = Generator(f"{SEED}/{number}")
                template, context = generator.body(3), generator.context()
                expected = python_render(template, context, mutable=True)
                if expected[0] == "text" and any(mark in expected[1] for mark in UNEQUAL):
                    continue
                found = engine.render(template, context)
                # Python folds slices of literals and -(2.0) ** x, and reads x[] as x[()].
                if found[0] == "error" and any(words in found[1] for words in
                                               ("64 bits", "has no slices", "expected an index", "a negative number")):
                    continue
                outcomes[expected[0]] += 1
                if found[0] != expected[0] or (expected[0] == "text" and found != expected):
                    self.fail(f"seed {SEED}/{number}\n{template!r}\n{context!r}\nexpected {expected!r}\nfound    {found!r}")
        # If all generated templates fail, the test checks little.
        self.assertGreater(outcomes["text"], CASES // 5, outcomes)


if __name__ == "__main__":
    unittest.main()
