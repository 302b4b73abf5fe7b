"""Training and test sequences, drawn from a random generator: book text and the tasks that need
distant parts of the cache.

A sequence is `length` + 1 ids, a weight per id (of the loss of predicting it) and the ranges of
the answers. Words that cannot be predicted (drawn keys and values at their first occurrence) have
weight 0. Answers are raised until they make up `share` of the sequence's weight. A sequence starts
with <|endoftext|> and may hold several documents, each of which starts with it.

Documents have two forms. Plain: `DOCUMENT\n\nQuestion: ...\nAnswer: ...<|endoftext|>`, followed by
further questions in the same way. Chat: ChatML turns, with the document in the first user turn.
"""
import random

import numpy as np

import wordings as W
from documents import Answer, ANSWER, Documents, NONE, Piece, TEMPLATE
from tokenizer import CHAT_END, CHAT_START, END

QUOTE_FREE = 3  # a repeated passage cannot be recognised before this many ids


class Sampler(Documents):
    """Draws sequences. held: use the keys, wordings and formats that training never sees."""

    def __init__(self, tokenizer, corpus, held=False, share=0.25, plain=0.65):
        """share: the answers' part of a sequence's weight; plain: frequency of the plain form, as
        opposed to the chat form."""
        self.tok, self.corpus, self.held, self.share, self.plain = tokenizer, corpus, held, share, plain
        self.makers = {name[5:]: getattr(self, name) for name in dir(self) if name.startswith("task_")}

    # -- tasks: each makes a document of at most `size` ids, or None where none fits --------------------------------

    def task_book(self, rng, size):
        out = Piece()
        start = self.corpus.start(rng, size)
        out.add([END], NONE)
        out.add(self.corpus.ids[start:start + size - 1].tolist(), 1.0)
        return out

    def task_repeat(self, rng, size):
        """A random run of ids, repeated: pure induction."""
        n = rng.randint(8, max(8, min(160, size // 3)))
        pool = self.tok.encode("0123456789") if rng.random() < 0.25 else range(259, len(self.tok.tokens))
        segment = [rng.choice(pool) for _ in range(n)]
        total = min(size - 1, n * rng.randint(2, 4))
        if total <= n + 3:
            return None
        out = Piece()
        out.add([END], NONE)
        ids = (segment * (total // n + 1))[:total]
        out.add(ids, [NONE] * (n + 2) + [0.5] * (total - n - 2))
        out.answers.append(Answer("repeat", n + 3, total + 1, 0.0))
        return out

    def task_cycle(self, rng, size):
        """Runs of random ids, each several times. Short ones reward heads that look a few ids back,
        the first half of an induction head; without a planted one the model learns these first."""
        out = Piece()
        out.add([END], NONE)
        while size - len(out) >= 8:
            n = rng.randint(2, rng.choice((2, 4, 8, 16)))
            total = min(size - len(out), n * rng.randint(3, 6))
            if total < n + 3:
                continue
            segment = [rng.randrange(259, len(self.tok.tokens)) for _ in range(n)]
            out.answers.append(Answer("cycle", len(out) + n + 2, len(out) + total, 0.0))
            out.add((segment * (total // n + 1))[:total], [NONE] * (n + 1) + [0.5] * (total - n - 1))
        return out

    def facts(self, rng, n):
        """n facts (attribute, entity, value) with different keys; some share the attribute, some
        the entity."""
        out, seen = [], set()
        attribute, entity = self.pick(rng, "ATTRIBUTES"), self.entity(rng)
        while len(out) < n:
            r = rng.random()
            a = attribute if r < 0.6 else self.pick(rng, "ATTRIBUTES")
            e = entity if r > 0.85 else self.entity(rng)
            if (a[0], e) not in seen:
                seen.add((a[0], e))
                out.append((a[0], e, self.value(rng, a[1])))
        return out

    def task_needle(self, rng, size, n_facts=None, n_questions=None, depth=None):
        """Facts in book text; some are asked for. depth: of the first one asked for."""
        room = max(1, size // 40)
        n = n_facts or min(room, rng.choice((1, 2, 4, 6, 8, 12, 16, 24, 41)))
        m = n_questions or min(rng.randint(1, 12), n, max(1, size // 60))
        facts, form = self.facts(rng, n), self.dialogue_parts(rng)
        pattern = self.pick(rng, "STATEMENTS")
        uniform = rng.random() < 0.4  # all facts in one wording, as in most needle tests
        pieces = [self.statement(pattern if uniform else self.pick(rng, "STATEMENTS"), a=a, e=e, v=v) for a, e, v in facts]
        asked = rng.sample(range(n), m)
        places = [None] * n
        places[asked[0]] = depth
        questions = [("needle", self.pick(rng, "QUESTIONS").format(a=facts[i][0], e=facts[i][1]), facts[i][2], i)
                     for i in asked]
        return self.haystack(rng, size, form, pieces, places, questions)

    def needle_at(self, place, size, depth, n_questions=1):
        """The test document for a place (see generator()): four facts, of which the first one asked
        for is at `depth`."""
        for attempt in range(50):  # returns None if the drawn words do not fit
            piece = self.task_needle(generator(*place, attempt), size, n_facts=4, n_questions=n_questions, depth=depth)
            if piece is not None:
                return piece
        raise ValueError(f"no four facts and a question fit into {size} ids")

    def task_multi_value(self, rng, size, **_):
        """Several values of one key, all to be listed in the order of the text."""
        n, (a, kind) = rng.randint(2, 4), self.pick(rng, "ATTRIBUTES")
        if kind in ("phrase", "name", "long"):
            kind = "number"
        entity, others = self.entity(rng), self.facts(rng, rng.randint(0, max(0, min(8, size // 60 - n))))
        values = list(dict.fromkeys(self.value(rng, kind) for _ in range(n)))
        others = [f for f in others if f[1] != entity]
        places = sorted(rng.random() for _ in values)
        pieces = [self.statement(self.pick(rng, "STATEMENTS"), a=a, e=entity, v=v) for v in values]
        pieces += [self.statement(self.pick(rng, "STATEMENTS"), a=x, e=y, v=z) for x, y, z in others]
        question = self.pick(rng, "LIST_QUESTIONS").format(a=a, e=entity)
        return self.haystack(rng, size, self.dialogue_parts(rng), pieces, places + [None] * len(others),
                             [("multi_value", question, ", ".join(values), 0)])

    def task_two_hop(self, rng, size, chain=None, **_):
        """Statements of who owns which thing, and the attribute of the thing."""
        n = rng.randint(1, max(1, min(8, size // 80)))
        a, kind = self.pick(rng, "ATTRIBUTES")
        people = list(dict.fromkeys(self.person(rng) for _ in range(n)))
        things = list(dict.fromkeys(self.thing(rng) for _ in range(n + 3)))[:len(people)]
        people = people[:len(things)]
        statement, description = self.pick(rng, "RELATIONS")
        pattern, values = self.pick(rng, "STATEMENTS"), [self.value(rng, kind) for _ in things]
        pieces = [self.statement(statement, p=p, o=o) for p, o in zip(people, things)]
        pieces += [self.statement(pattern, a=a, e=o, v=v) for o, v in zip(things, values)]
        questions = []
        for i in rng.sample(range(len(things)), min(len(things), rng.randint(1, 6))):
            text = self.pick(rng, "QUESTIONS").format(a=a, e=description.format(p=people[i]))
            named = rng.random() < 0.5 if chain is None else chain
            questions.append(("two_hop_named" if named else "two_hop", text + (W.CHAIN if named else ""),
                              f"{things[i]}, {values[i]}" if named else values[i], len(things) + i))
        return self.haystack(rng, size, self.dialogue_parts(rng), pieces, [None] * len(pieces), questions)

    def task_key_value(self, rng, size, **_):
        """A list of keys and values; in half of the documents its lines are grouped between book
        sentences."""
        form, line = self.dialogue_parts(rng), self.pick(rng, "KEY_FORMATS")
        kind = rng.choice(("number", "word", "made", "mixed", "phrase"))
        budget, keys, pieces = rng.uniform(0.1, 0.9) * (size - 120), {}, []
        while len(keys) < 2 or sum(map(len, pieces)) < budget:
            k = self.key(rng)
            if k in keys:
                continue
            keys[k] = self.value(rng, kind)
            before = "\n" if not pieces else ""
            pieces.append(Piece(*self.tok.encode_weighted(
                [(before, NONE)] * bool(before) + [(t, NONE if t in (k, keys[k]) else TEMPLATE)
                                                  for t in self._split_line(line, k, keys[k])])))
            if len(keys) == 60:
                break
        asked = rng.sample(list(keys), min(len(keys), rng.randint(1, 12)))
        order = list(keys)
        questions = [("key_value", self.pick(rng, "KEY_QUESTIONS").format(k=k), keys[k], order.index(k)) for k in asked]
        if rng.random() < 0.5:
            return self._bare(size, form, pieces, questions)
        together = Piece()
        for p in pieces:
            together.add(p.ids, p.weights)
        return self.haystack(rng, size, form, [together], [None], [(t, q, a, 0) for t, q, a, _ in questions])

    @staticmethod
    def _split_line(line, k, v):
        before, rest = line.split("{k}")
        middle, after = rest.split("{v}")
        return [t for t in (before, k, middle, v, after) if t]

    def _bare(self, size, form, pieces, questions):
        """A document without book text."""
        out, starts = Piece(), []
        out.add([END, *form[0]], NONE)
        for p in pieces:
            starts.append(len(out))
            out.add(p.ids, p.weights)
        self.ask(out, form, [(t, q, a, starts[i]) for t, q, a, i in questions])
        for a in out.answers:
            a.depth /= len(out)
        return out if len(out) <= size else None

    def task_quote(self, rng, size, **_):
        """Book text in which passages of several sentences are repeated later, word for word."""
        if size < 160:
            return None
        out, start = Piece(), self.corpus.start(rng, size)
        text = self.corpus.ids[start:start + size].tolist()
        ends = [int(e) - start for e in self.corpus.ends[slice(*np.searchsorted(self.corpus.ends, [start, start + size]))]]
        out.add([END], NONE)
        at, broken = 0, []  # broken: where a quotation interrupts the text
        while len(out) < size:
            step = rng.randint(40, max(41, min(600, size // 3)))
            stop = next((e for e in ends if e >= at + step), len(text))
            out.add(text[at:stop], 1.0)
            at = stop
            starts = [e for e in ends if e < at - 24]
            if at >= len(text) or not starts:
                break
            first = rng.choice(starts)
            until = min([first + 120, at, *(b for b in broken if b > first)])
            stops = [e for e in ends if first + 16 <= e <= until]
            broken.append(at)
            if stops:
                passage = text[first:rng.choice(stops)]
                out.add(*self.tok.encode_weighted([("\n" + self.pick(rng, "QUOTE_INTROS"), TEMPLATE)]))
                out.answers.append(Answer("quote", len(out) + QUOTE_FREE, len(out) + len(passage), 0.0))
                out.add(passage, [NONE] * QUOTE_FREE + [1.0] * (len(passage) - QUOTE_FREE))
                out.add(self.tok.encode("\n"), TEMPLATE)
        out.ids, out.weights = out.ids[:size], out.weights[:size]
        out.answers = [a for a in out.answers if a.end <= size]
        return out

    def task_copy(self, rng, size, **_):
        """A text and, on request, its copy."""
        before, after = self.pick(rng, "COPY_INTROS")
        room = (size - 30) // 2
        if room < 12:
            return None
        r = rng.random()
        if r < 0.4:
            start = self.corpus.start(rng, room)
            body = self.tok.decode(self.corpus.ids[start:start + rng.randint(8, min(200, room))]).strip()
        elif r < 0.7:
            body = " ".join(rng.choice(W.WORDS) for _ in range(rng.randint(3, max(3, min(40, room // 5)))))
        else:
            body = " ".join(self.any_value(rng) for _ in range(rng.randint(2, max(2, min(12, room // 12)))))
        out = Piece()
        out.add([END], NONE)
        out.add(*self.tok.encode_weighted([(before + " ", TEMPLATE), (body, NONE), ("\n" + after, TEMPLATE)]))
        self.answer(out, "copy", " " + body, 0.0)
        out.add([END], ANSWER)
        return out if len(out) <= size else None

    def task_few_shot(self, rng, size, items=None, **_):
        """Words of two to four categories under invented labels; each new word is a question."""
        form = self.pick(rng, "FEW_SHOT_FORMATS")
        kinds = rng.sample(sorted(W.CATEGORIES), rng.randint(2, 4))
        labels = dict(zip(kinds, rng.sample(W.WORDS, len(kinds))))
        lookup = rng.random() < 0.3  # the questions repeat the words
        words = [(w, k) for k in kinds for w in rng.sample(W.CATEGORIES[k], rng.randint(3, len(W.CATEGORIES[k])))]
        rng.shuffle(words)
        if lookup:
            words = words[:6] * 4
        out = Piece()
        out.add([END], NONE)
        seen, limit = set(), items or rng.randint(6, 60)
        head, tail = form.split("{y}")
        for w, k in words[:limit]:
            known = w in seen if lookup else k in seen
            ids, weights = self.tok.encode_weighted([(head.format(x=w).rstrip(" "), NONE)])
            label = self.tok.encode(" " + labels[k])
            end = self.tok.encode(tail)
            if len(out) + len(ids) + len(label) + len(end) + 1 > size:
                break
            out.add(ids, weights)
            if known:
                out.answers.append(Answer("few_shot", len(out), len(out) + len(label), 0.0))
            out.add(label, ANSWER if known else NONE)
            out.add(end, TEMPLATE)
            seen.update((w, k))
        out.add([END], NONE)
        return out if out.answers else None

    def task_count(self, rng, size, **_):
        """How often a word occurs in a list."""
        words = rng.sample(W.WORDS, rng.randint(2, 5))
        listed = [w for w in words for _ in range(rng.randint(1, 6))]
        rng.shuffle(listed)
        piece = Piece(*self.tok.encode_weighted([("List: " + ", ".join(listed) + ".", NONE)]))
        questions = [("count", self.pick(rng, "COUNT_QUESTIONS").format(w=w), str(listed.count(w)), 0) for w in words]
        return self._bare(size, self.dialogue_parts(rng), [piece], questions)

    def task_dialogue(self, rng, size, **_):
        """A chat in which facts are told between passages of a story and asked for later."""
        t, out = self.tok, Piece()
        out.add([END], NONE)
        chat = ([], "", None, CHAT_END)
        facts, opened, asked = [], False, 0

        def user(parts):
            out.add(([*t.encode("\n")] if opened else []) + [CHAT_START], TEMPLATE)
            out.add(*t.encode_weighted([("user\n", TEMPLATE), *parts]))

        def reply():
            out.add([CHAT_END, *t.encode("\n"), CHAT_START, *t.encode("assistant\n")], TEMPLATE)
            out.add([*t.encode(rng.choice(W.ACKNOWLEDGEMENTS)), CHAT_END], TEMPLATE)

        attributes = W.ATTRIBUTES_HELD if self.held else W.ATTRIBUTES
        mine = iter(rng.sample(attributes, len(attributes)))
        budget = rng.uniform(0.4, 1.0) * size - 80
        while len(out) < budget:
            r = rng.random()
            if r < 0.4 or not facts:
                own = next(mine, None) if rng.random() < 0.6 else None
                if own:
                    value = self.value(rng, own[1])
                    pattern, question = self.pick(rng, "SELF_STATEMENTS"), self.pick(rng, "SELF_QUESTIONS").format(a=own[0])
                    fields = {"a": own[0], "v": value}
                else:
                    (a, e, value), = self.facts(rng, 1)
                    if any(e in q for q, _, _ in facts):
                        continue
                    pattern, question = self.pick(rng, "STATEMENTS"), self.pick(rng, "QUESTIONS").format(a=a, e=e)
                    fields = {"a": a, "e": e, "v": value}
                facts.append((question, value, len(out)))
                piece = self.render(pattern, **fields)
                user([])
                out.add(piece.ids, piece.weights)
                reply()
            elif r < 0.75:
                n = rng.randint(20, max(21, min(400, int(size / 4))))
                start = self.corpus.start(rng, n)
                user([(rng.choice(W.READING), TEMPLATE)])
                out.add(self.corpus.ids[start:start + n].tolist(), 1.0)
                reply()
            else:
                question, value, depth = rng.choice(facts)
                self.ask(out, chat, [("dialogue", question, value, depth)], first=False)
                asked += 1
            opened = True
        for question, value, depth in rng.sample(facts, min(len(facts), 3)):
            self.ask(out, chat, [("dialogue", question, value, depth)], first=False)
        for a in out.answers:
            a.depth /= len(out)
        return out if len(out) <= size else None

    # -- sequences -----------------------------------------------------------------------------------------------

    def sequence(self, rng, length, mixture, whole=0.6):
        """length + 1 ids, float32 weights, answers. mixture: task -> relative frequency.

        With probability `whole` the first document fills the whole sequence; otherwise documents
        of random sizes follow each other. The rest is filled with book text.
        """
        out = Piece()
        names, frequencies = zip(*sorted(mixture.items()))
        total = length + 1
        one = rng.random() < whole
        while total - len(out) >= 48:
            left = total - len(out)
            size = left if one else min(left, rng.randint(48, max(48, left)))
            if left - size < 48:
                size = left
            piece = None
            for _ in range(4):
                piece = self.makers[rng.choices(names, frequencies)[0]](rng, size)
                if piece is not None:
                    break
            if piece is None:
                piece = self.task_book(rng, size)
            for a in piece.answers:
                out.answers.append(Answer(a.task, a.start + len(out), a.end + len(out), a.depth))
            out.add(piece.ids, piece.weights)
        if len(out) < total:
            out.add(self.task_book(rng, total - len(out)).ids, [NONE] + [1.0] * (total - len(out) - 1))
        return self.weigh(out)

    def weigh(self, piece):
        """Final weights: the answers together make up `share`, but each weighs at least twice a
        plain id."""
        w = np.array(piece.weights, dtype=np.float32)
        marked = w < 0
        n = int(marked.sum())
        if n:
            w[marked] = 0
            w[marked] = max(2.0, self.share / (1 - self.share) * max(8.0, float(w.sum())) / n)
        return np.array(piece.ids, dtype=np.int64), w, piece.answers


def generator(seed, *place):
    """A random generator for one sequence. The same seed and place give the same sequence on every
    machine."""
    return random.Random("/".join(map(str, (seed, *place))))
