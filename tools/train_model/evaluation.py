"""Measurements during training, on the training model. The figures of the model card come from
measure.py."""
import collections
import math

import numpy as np
import torch

import model
import tasks


def _batches(sequences, tokens):
    """Splits sequences of one length into batches of at most `tokens` ids."""
    n = max(1, tokens // (len(sequences[0][0]) - 1))
    for i in range(0, len(sequences), n):
        yield sequences[i:i + n]


class Evaluator:
    """Measures on the held-out text. run(ids, target, weight) -> nll, correct, both [batch,
    length].
    """

    def __init__(self, tokenizer, corpus, run, seed=77, batch_tokens=8192):
        self.tok, self.corpus, self.run, self.seed, self.batch_tokens = tokenizer, corpus, run, seed, batch_tokens
        self.sizes = np.array([len(b) for b in tokenizer.bytes])

    def _scored(self, sequences):
        for batch in _batches(sequences, self.batch_tokens):
            ids = torch.from_numpy(np.stack([s[0] for s in batch]))
            nll, correct = self.run(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(),
                                    torch.ones(len(batch), ids.shape[1] - 1))
            yield from zip(batch, nll.float().cpu().numpy(), correct.cpu().numpy())

    def recall(self, length, documents, held):
        """Share of needles answered right per decile of depth; 4 facts, one asked for."""
        sampler, sequences = tasks.Sampler(self.tok, self.corpus, held), []
        for n in range(documents):
            piece = sampler.needle_at((self.seed, "recall", length, held, n), length + 1, (n % 10 + 0.5) / 10)
            sequences.append(sampler.weigh(piece))
        right = collections.defaultdict(list)
        for n, ((_, _, (a,)), _, ok) in enumerate(self._scored(sequences)):
            right[n % 10].append(bool(ok[a.start - 1:a.end - 1].all()))
        return {depth: sum(x) / len(x) for depth, x in sorted(right.items())}

    def accuracy(self, task, length, documents, held):
        """Share of answers that are right in every id; for quotes and repeated ids the share of
        right ids."""
        sampler, sequences = tasks.Sampler(self.tok, self.corpus, held), []
        for n in range(documents):
            sequences.append(sampler.sequence(tasks.generator(self.seed, task, length, held, n), length, {task: 1.0}, 1.0))
        right = []
        for (_, _, answers), _, ok in self._scored(sequences):
            for a in answers:
                hit = ok[a.start - 1:a.end - 1]
                right.append((a.task, float(hit.mean() if task in ("quote", "repeat", "cycle") else hit.all())))
        out = collections.defaultdict(list)
        for name, hit in right:
            out[name].append(hit)
        return {name: sum(x) / len(x) for name, x in out.items()}

    def bits_per_byte(self, length, windows):
        """On evenly spaced windows of held-out text that start with <|endoftext|>."""
        x, sequences = self.corpus.ids, []
        for start in np.linspace(0, len(x) - length - 1, windows).astype(int):
            sequences.append((np.concatenate([[0], x[start:start + length]]), None, None))
        nats = size = 0
        for (ids, _, _), nll, _ in self._scored(sequences):
            nats, size = nats + float(nll.sum()), size + int(self.sizes[ids[1:]].sum())
        return nats / math.log(2) / size

    def quote_bits_per_byte(self, length, windows):
        """(over all of a text with quoted passages, over the predictable quoted ids only)."""
        sampler, sequences = tasks.Sampler(self.tok, self.corpus), []
        for n in range(windows):
            sequences.append(sampler.sequence(tasks.generator(self.seed, "quotes", length, n), length, {"quote": 1.0}, 1.0))
        total, quoted = np.zeros(2), np.zeros(2)
        for (ids, _, answers), nll, _ in self._scored(sequences):
            size = self.sizes[ids[1:]]
            total += nll.sum(), size.sum()
            for a in answers:
                quoted += nll[a.start - 1:a.end - 1].sum(), size[a.start - 1:a.end - 1].sum()
        return tuple(float(x[0] / math.log(2) / max(1, x[1])) for x in (total, quoted))

    def short_report(self, lengths, documents, tasks_length, task_names, windows):
        report = {"recall": {n: round(float(np.mean(list(self.recall(n, documents, False).values()))), 3) for n in lengths},
                  "recall_held_words": round(float(np.mean(list(self.recall(lengths[-1], documents, True).values()))), 3),
                  "bits_per_byte": round(self.bits_per_byte(512, windows), 4)}
        report["tasks"] = {k: round(v, 3) for t in task_names
                           for k, v in self.accuracy(t, tasks_length, max(4, documents // 2), False).items()}
        report["quote_bits_per_byte"] = [round(x, 3) for x in self.quote_bits_per_byte(lengths[-1], max(2, windows // 8))]
        return report


def runner(p, shape, ops, device, autocast):
    """The `run` of an Evaluator for parameters p. Lengths need not be multiples of 32."""
    @torch.no_grad()
    def run(ids, target, weight):
        length = ids.shape[1]
        pad = -length % 32
        if pad:
            ids, target = (torch.nn.functional.pad(x, (0, pad)) for x in (ids, target))
            weight = torch.nn.functional.pad(weight, (0, pad))
        with autocast():
            _, nll, correct = model.loss(p, ids.to(device), target.to(device), weight.to(device), shape, ops)
        return nll[:, :length], correct[:, :length]
    return run
