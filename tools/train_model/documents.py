"""Parts of the documents of tasks.py: runs of weighted ids, drawn names and values, text that
contains facts."""
import dataclasses

import numpy as np

import wordings as W
from tokenizer import CHAT_END, CHAT_START, END

TEMPLATE, QUESTION, NONE, ANSWER = 0.2, 0.2, 0.0, -1.0  # weights; ANSWER is replaced when the sequence is complete


@dataclasses.dataclass
class Answer:
    task: str
    start: int  # ids[start:end] is the answer without its end token
    end: int
    depth: float  # relative position of the fact to find, 0 (first) to 1 (last id of the document)


@dataclasses.dataclass
class Piece:
    """A run of ids with weights; `answers` are relative to its start."""
    ids: list = dataclasses.field(default_factory=list)
    weights: list = dataclasses.field(default_factory=list)
    answers: list = dataclasses.field(default_factory=list)

    def add(self, ids, weights):
        self.ids += ids
        self.weights += weights if isinstance(weights, list) else [weights] * len(ids)

    def __len__(self):
        return len(self.ids)


class Corpus:
    """Encoded text, and the positions where a sentence ends and the next one begins with a space
    and a letter."""

    def __init__(self, ids, tokenizer):
        self.ids = np.asarray(ids, dtype=np.int64)
        dot = tokenizer.id["."]
        opens = np.array([t.startswith("\u0120") and len(t) > 1 and t[1].isalpha() for t in tokenizer.tokens])
        self.ends = np.nonzero((self.ids[:-1] == dot) & opens[self.ids[1:]])[0] + 1

    def start(self, rng, length):
        """A sentence start with at least `length` ids after it."""
        n = int(np.searchsorted(self.ends, len(self.ids) - length))
        if n == 0:
            raise ValueError(f"the text has {len(self.ids)} ids, too few for a stretch of {length}")
        return int(self.ends[rng.randrange(n)])


class Documents:
    """Draws words and builds documents from them. Requires `tok`, `corpus` and `held` (Sampler)."""

    # -- words ---------------------------------------------------------------------------------------------------

    def pick(self, rng, name):
        """Draws from a list of wordings.py, the held-out variant if the sampler is held out and
        there is one."""
        return rng.choice(getattr(W, name + "_HELD", None) or getattr(W, name)) if self.held else rng.choice(getattr(W, name))

    def made_name(self, rng):
        return "".join(rng.choice(W.SYLLABLES) for _ in range(rng.randint(2, 4))).capitalize()

    def person(self, rng):
        if rng.random() < 0.3:
            return self.made_name(rng) + " " + self.made_name(rng)
        return self.pick(rng, "FIRST_NAMES") + " " + self.pick(rng, "LAST_NAMES")

    def thing(self, rng):
        adjectives = [self.pick(rng, "ADJECTIVES") for _ in range(rng.choice((1, 1, 2)))]
        return "the " + " ".join([*dict.fromkeys(adjectives), self.pick(rng, "NOUNS")])

    def entity(self, rng):
        r = rng.random()
        if r < 0.45:
            return self.thing(rng)
        if r < 0.8:
            return self.person(rng)
        if r < 0.9:
            return f"{rng.choice(('room', 'house', 'cabin', 'box'))} {rng.randint(10, 999)}"
        return f"the ship {self.made_name(rng)}"

    def value(self, rng, kind):
        if kind == "number":
            return str(rng.randint(10 ** rng.randint(2, 4), 99999))
        if kind == "long":
            return "".join(str(rng.randrange(10)) for _ in range(rng.randint(7, 9)))
        if kind == "mixed":
            return "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789") for _ in range(rng.randint(4, 7)))
        if kind == "date":
            return f"{rng.randint(1, 28)} {rng.choice(W.MONTHS)}"
        if kind == "phrase":
            return " ".join(rng.sample(W.WORDS, rng.randint(2, 4)))
        if kind == "name":
            return self.person(rng)
        if kind == "made":
            return self.made_name(rng)
        return rng.choice({"word": W.WORDS, "colour": W.COLOURS, "place": W.PLACES}[kind])

    def key(self, rng):
        """Draws a key of a key-value list."""
        r = rng.random()
        if r < 0.25:
            return "".join(rng.choice("0123456789abcdef") for _ in range(rng.randint(4, 8)))
        if r < 0.5:
            return self.made_name(rng).lower()
        if r < 0.75:
            return f"{self.pick(rng, 'NOUNS')}-{rng.randint(1, 999)}"
        return f"{self.pick(rng, 'ADJECTIVES')} {self.pick(rng, 'NOUNS')}"

    def any_value(self, rng):
        return self.value(rng, rng.choice(("number", "word", "phrase", "made", "mixed", "name")))

    # -- pieces --------------------------------------------------------------------------------------------------

    def render(self, pattern, before="", base=TEMPLATE, **fields):
        """Ids and weights of a pattern: the pattern's words have the weight `base`, the fields 0.
        """
        parts, rest = [(before, base)] if before else [], pattern
        while rest:
            at = rest.find("{")
            if at < 0:
                parts.append((rest, base))
                break
            if at:
                parts.append((rest[:at], base))
            parts.append((fields[rest[at + 1:rest.index("}")]], NONE))
            rest = rest[rest.index("}") + 1:]
        return Piece(*self.tok.encode_weighted(parts))

    def statement(self, pattern, **fields):
        return self.render(pattern, before=" ", **fields)

    def dialogue_parts(self, rng):
        """Texts (before the document, between document and question, before an answer, after it)
        for one of the two forms."""
        if rng.random() < self.plain:
            return [], "\n\nQuestion: ", "\nAnswer:", None
        head = []
        if rng.random() < 0.3:
            head += [CHAT_START, *self.tok.encode("system\n" + W.SYSTEM), CHAT_END, *self.tok.encode("\n")]
        return head + [CHAT_START, *self.tok.encode("user\n")], "\n\n", None, CHAT_END

    def ask(self, out, form, questions, first=True):
        """Appends questions and answers. questions: (task, text, answer, depth)."""
        _, between, answer_mark, end = form
        for n, (task, text, answer, depth) in enumerate(questions):
            if end is None:
                out.add(*self.tok.encode_weighted([(between + text + answer_mark, QUESTION)]))
                self.answer(out, task, " " + answer, depth)
                out.add([END], ANSWER)
            else:
                if n or not first:
                    out.add([*self.tok.encode("\n"), CHAT_START], QUESTION)
                    out.add(*self.tok.encode_weighted([("user\n" + text, QUESTION)]))
                else:
                    out.add(*self.tok.encode_weighted([(between + text, QUESTION)]))
                out.add([CHAT_END, *self.tok.encode("\n"), CHAT_START, *self.tok.encode("assistant\n")], QUESTION)
                self.answer(out, task, answer, depth)
                out.add([CHAT_END], ANSWER)

    def answer(self, out, task, text, depth):
        ids = self.tok.encode(text)
        out.answers.append(Answer(task, len(out), len(out) + len(ids), depth))
        out.add(ids, ANSWER)

    def haystack(self, rng, size, form, pieces, places, questions):
        """Book text with `pieces` between its sentences, sized so that the document has `size` ids.

        places: depth of each piece in the text, or None for a random one. questions: as for ask(),
        but with the index of the piece that holds the answer in place of the depth.
        """
        head, tail = Piece(), Piece()
        head.add([END, *form[0]], NONE)
        self.ask(tail, form, [(t, q, a, 0.0) for t, q, a, _ in questions])
        fill = size - len(head) - len(tail) - sum(map(len, pieces))
        if fill < 0:
            return None
        start = self.corpus.start(rng, fill + 1)
        lo, hi = np.searchsorted(self.corpus.ends, [start, start + fill])
        cuts = self.corpus.ends[lo:hi] if hi > lo else np.array([start])
        at = [int(cuts[rng.randrange(len(cuts))]) if d is None
              else int(cuts[np.argmin(np.abs(cuts - (start + d * fill)))]) for d in places]
        out, last, depth = head, start, [0.0] * len(pieces)
        for i in sorted(range(len(pieces)), key=lambda i: (at[i], i)):
            out.add(self.corpus.ids[last:at[i]].tolist(), 1.0)
            last = at[i]
            depth[i] = len(out) / size
            out.add(pieces[i].ids, pieces[i].weights)
        out.add(self.corpus.ids[last:start + fill].tolist(), 1.0)
        for a, (_, _, _, i) in zip(tail.answers, questions):
            out.answers.append(Answer(a.task, a.start + len(out), a.end + len(out), depth[i]))
        out.add(tail.ids, tail.weights)
        return out
