"""Byte-level BPE with GPT-2's byte alphabet and pre-tokenizer, which GGUF engines know as `gpt2` /
`gpt-2`.

No merge contains a digit or a newline: each of these is a token of its own. Ids: special tokens,
the 256 bytes, merges.
"""
import collections
import heapq
import json
import pathlib
import re

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END, CHAT_START, CHAT_END = range(3)
# Python has no \p{L} and \p{N}; the two classes differ from GPT-2's only in rare number signs (say, a vulgar fraction).
PIECE = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def _alphabet():
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


ALPHABET = _alphabet()
_BYTES = {c: b for b, c in ALPHABET.items()}


def _apply(symbols, pair):
    a, b = pair
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and symbols[i] == a and symbols[i + 1] == b:
            out.append(a + b)
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def train(counts, merges):
    """Merges the most frequent adjacent pair, `merges` times. counts: piece -> number of
    occurrences.
    """
    words = [([ALPHABET[b] for b in w.encode()], c) for w, c in sorted(counts.items()) if not re.search(r"[\d\n]", w)]
    total, where = collections.Counter(), collections.defaultdict(set)
    for i, (s, c) in enumerate(words):
        for pair in zip(s, s[1:]):
            total[pair] += c
            where[pair].add(i)
    heap = [(-c, p) for p, c in total.items()]
    heapq.heapify(heap)
    out = []
    while len(out) < merges:
        negative, pair = heapq.heappop(heap)
        if total[pair] != -negative:
            if total[pair] > 0:
                heapq.heappush(heap, (-total[pair], pair))
            continue
        out.append(pair)
        touched = set()
        for i in sorted(where[pair]):
            s, c = words[i]
            for q in zip(s, s[1:]):
                total[q] -= c
            s = _apply(s, pair)
            words[i] = (s, c)
            for q in zip(s, s[1:]):
                total[q] += c
                where[q].add(i)
                touched.add(q)
        total[pair] = 0
        for q in touched:
            if total[q] > 0:
                heapq.heappush(heap, (-total[q], q))
    return out


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.tokens = SPECIAL + [ALPHABET[b] for b in range(256)] + ["".join(m) for m in self.merges]
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.bytes = [b""] * len(SPECIAL) + [bytes(_BYTES[c] for c in t) for t in self.tokens[len(SPECIAL):]]
        self.cache = {}

    @classmethod
    def load(cls, path):
        return cls([m.split(" ") for m in json.loads(pathlib.Path(path).read_text())["merges"]])

    def save(self, path):
        pathlib.Path(path).write_text(json.dumps({"tokens": self.tokens, "merges": [" ".join(m) for m in self.merges]}))

    def piece(self, text):
        """Ids of one piece of the pre-tokenizer."""
        ids = self.cache.get(text)
        if ids is None:
            s = [ALPHABET[b] for b in text.encode()]
            while len(s) > 1:
                best = min(zip(s, s[1:]), key=lambda p: self.rank.get(p, len(self.rank)))
                if best not in self.rank:
                    break
                s = _apply(s, best)
            ids = self.cache[text] = [self.id[x] for x in s]
        return ids

    def encode(self, text):
        """Does not recognize special tokens in `text`."""
        return [i for w in PIECE.findall(text) for i in self.piece(w)]

    def encode_weighted(self, parts):
        """Encodes the concatenation of `parts` (text, weight). Returns ids and a weight per id:
        that of the part in which its piece ends.

        Encoding the whole text gives the tokens that an engine makes of the whole prompt.
        """
        text = "".join(t for t, _ in parts)
        ids, weights, at, end, part = [], [], 0, 0, -1
        for match in PIECE.finditer(text):
            while end < match.end():
                part += 1
                at, end = end, end + len(parts[part][0])
            new = self.piece(match.group())
            ids += new
            weights += [parts[part][1]] * len(new)
        return ids, weights

    def decode(self, ids):
        return b"".join(self.bytes[i] for i in ids).decode("utf-8", "replace")
