"""Both engines: Python's jinja2 in its sandbox, with the settings of Hugging Face transformers, and winnow's."""

import datetime
import functools
import json
import os
import subprocess
import warnings

import jinja2
import jinja2.ext
import jinja2.sandbox

warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=SyntaxWarning)  # from Python's compiler, for `5[0]`

RENDER = os.environ.get("WINNOW_JINJA_RENDER", "build/release/tests/winnow_jinja_render")
TIME = 1_760_000_000  # 2025-10-09 08:53:20 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: transformers tracks the text of the assistant with it; the output is the same."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


class Refused(Exception):
    pass


def environment(mutable=False):
    kind = jinja2.sandbox.SandboxedEnvironment if mutable else jinja2.sandbox.ImmutableSandboxedEnvironment
    env = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Refused(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(TIME, datetime.timezone.utc).strftime(form)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


@functools.lru_cache(maxsize=8)
def compiled(template, mutable):
    return environment(mutable).from_string(template)


def python_render(template, context, mutable=False):
    """Returns ("text", text), ("refused", message) or ("error", message)."""
    try:
        return "text", compiled(template, mutable).render(**context)
    except Refused as error:
        return "refused", str(error)
    except Exception as error:  # any error that Python raises
        return "error", f"{type(error).__name__}: {error}"


class Engine:
    """winnow_jinja_render, one request after another."""

    def __enter__(self):
        self.process = subprocess.Popen([RENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()

    def answer(self, template, context):
        request = json.dumps({"template": template, "context": context, "time": TIME})
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended ({self.process.wait()}) on {request}")
        return json.loads(line)

    def render(self, template, context):
        answer = self.answer(template, context)
        if "text" in answer:
            return "text", answer["text"]
        prefix = "the template refuses: "
        if answer["error"].startswith(prefix):
            return "refused", answer["error"][len(prefix):]
        return "error", answer["error"]
