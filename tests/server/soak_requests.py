"""The requests of soak.py: bodies of every kind, and the part of an answer that must be the same each time."""

import contextlib
import pathlib
import tempfile

WORDS = "the a red lantern hung above door of inn quiet harbour code was boat rope salt moon old gull stone".split()

# In a model whose token "<|im_start|>" is spelled as the marker of a call.
MARKER = "[TOOL_CALLS]"
TEMPLATE = ("{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
            "{% for c in m.tool_calls or [] %}[TOOL_CALLS] [{{ c | tojson }}]{% endfor %}{% endfor %}assistant: ")
SCHEMAS = [{}, {"type": "object", "properties": {"a": {"enum": ["inn", "sea"]}, "n": {"type": "integer"}}, "required": ["a", "n"]},
           {"type": "array", "items": {"enum": ["boat", 1, None]}, "minItems": 1, "maxItems": 3}]
GRAMMARS = ['root ::= (" the" | " a" | " boat")+ "."', "root ::= [a-z ]{3,9} [0-9]+", 'root ::= item ("," item)*\nitem ::= "(" item? ")"']
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {of: {"type": kind}}, "required": [of],
                                                                        "additionalProperties": False}}}
         for name, of, kind in (("get", "n", "integer"), ("put", "it", "boolean"))]


class Failure(Exception):
    pass


def expect(condition, *what):
    if not condition:
        raise Failure(" ".join(str(part)[:600] for part in what))


def make_text(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def kv_choices(methods):
    """kv_* fields: each method of GET /v1/methods that takes a size, and the other ways to give a budget."""
    sized = [{"kv_method": method["id"], "kv_size": max(32, method["min_size"])} for method in methods if method["needs_budget"]]
    free = [{"kv_method": method["id"]} for method in methods if not method["needs_budget"]]
    return sized + free + [{}, {}, {"kv_method": "streaming", "kv_ratio": 0.5}, {"kv_method": "snapkv", "kv_decode": "h2o", "kv_size": 48}] \
        + [{"kv_method": method, "kv_memory": amount} for method in ("streaming", "snapkv", "h2o") for amount in (60000, "64K")]


@contextlib.contextmanager
def model_with_marker(model):
    """A copy of the model in which a control token is spelled as the marker that begins a call."""
    data, begin = pathlib.Path(model).read_bytes(), b"<|im_start|>"
    expect(begin in data and len(begin) == len(MARKER), f"{model} has no <|im_start|> to spell {MARKER}")
    with tempfile.NamedTemporaryFile(prefix="winnow-soak-", suffix=".gguf") as file:
        file.write(data.replace(begin, MARKER.encode()))
        file.flush()
        yield file.name


def make_bodies(rng, n, choices):
    """Returns (path, body) of well-formed requests; the first ones use each of the choices once."""
    bodies = []
    for number in range(n):
        text = make_text(rng, rng.choice([1, 3, 10, 30, 60, 90]))
        kv = choices[number] if number < len(choices) else rng.choice(choices)
        body = {"temperature": 0, "max_tokens": rng.choice([1, 2, 5, 12, 24]), **kv}
        if rng.random() < 0.3:
            body.update({"temperature": rng.choice([0.5, 1, 1.5]), "seed": rng.randrange(1 << 31), **rng.choice([{}, {"top_p": 0.9}, {"top_k": 8}])})
        if rng.random() < 0.2:
            body["n"] = rng.choice([2, 3])
        if rng.random() < 0.2:
            body["stop"] = [rng.choice("aeiou"), "zq"]
        if rng.random() < 0.2:
            body["ignore_eos"] = True
        path = rng.choice(["/v1/completions", "/completion", "/v1/chat/completions"])
        if path == "/v1/chat/completions":
            body["messages"] = [{"role": "user", "content": text}]
            body.update(rng.choice([{}, {"logprobs": True, "top_logprobs": 3}]))
        else:
            body["prompt"] = text
        bodies.append((path, body))
    return bodies


def make_calls(marker):
    """Fields of chats with tools. `marker`: the token that begins a call; a logit bias makes the model write it."""
    begin = {"logit_bias": {str(marker): 100}}
    return [{"tools": TOOLS[:1]}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS, **begin},
            {"tools": TOOLS[1:], "parallel_tool_calls": False, **begin}]


def make_constraints():
    """Returns (path, fields) that restrict the answer, which needs a build with grammars."""
    chat, native = "/v1/chat/completions", "/completion"
    named = {"type": "function", "function": {"name": "put"}}
    return [(chat, {"response_format": {"type": "json_object"}}), (chat, {"tools": TOOLS, "tool_choice": "required"}),
            (chat, {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": True}), (chat, {"tools": TOOLS, "tool_choice": named}),
            *((chat, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}) for schema in SCHEMAS),
            *((native, {"json_schema": schema}) for schema in SCHEMAS), *((native, {"grammar": grammar}) for grammar in GRAMMARS)]


def make_formed_bodies(rng, choices, marker, has_grammars):
    """Returns (path, body) with tools and, in builds with grammars, with each restriction of the answer."""
    bodies = []
    for path, fields in [("/v1/chat/completions", calls) for calls in make_calls(marker)] + (make_constraints() if has_grammars else []):
        text = {"prompt": make_text(rng, 5)} if path == "/completion" else {"messages": [{"role": "user", "content": make_text(rng, 5)}]}
        sampling = rng.choice([{"temperature": 0}, {"temperature": 1, "seed": rng.randrange(1 << 31)}])
        bodies.append((path, {**text, **sampling, "max_tokens": rng.choice([8, 40]), **rng.choice([{}, {"n": 2}]), **rng.choice(choices), **fields}))
    return bodies


def make_documents(rng, n, choices):
    """Returns (session, question): documents to read once, and questions about them."""
    return [({"document": make_text(rng, rng.choice([20, 60])), **rng.choice(choices)},
             {"messages": [{"role": "user", "content": make_text(rng, 4)}], "temperature": 0, "max_tokens": 6})
            for _ in range(n)]


def said(path, answer):
    """The part of a complete answer that must be the same each time: texts and finish reasons."""
    value = answer.json
    if path == "/completion":
        return [(one["content"], one["stop_type"]) for one in (value if isinstance(value, list) else [value])]
    if path == "/v1/completions":
        return [(choice["text"], choice["finish_reason"]) for choice in value["choices"]]
    return [(choice["message"]["content"] or "", choice["finish_reason"], *named_calls(choice["message"])) for choice in value["choices"]]


def named_calls(message):
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]


def said_in_stream(path, answer, n):
    texts, ends, calls = [""] * n, [None] * n, [{} for _ in range(n)]
    for event in answer.events:
        expect("error" not in event, path, event)
        if path == "/completion":
            texts[event["index"]] += event["content"]
            ends[event["index"]] = event.get("stop_type") or ends[event["index"]]
        for choice in event.get("choices", []):
            texts[choice["index"]] += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            ends[choice["index"]] = choice["finish_reason"] or ends[choice["index"]]
            for part in choice.get("delta", {}).get("tool_calls", ()):
                call = calls[choice["index"]].setdefault(part["index"], ["", ""])
                call[0] += part["function"].get("name", "")
                call[1] += part["function"].get("arguments", "")
    return [(text, end, *(tuple(call) for call in made.values())) for text, end, made in zip(texts, ends, calls)]
