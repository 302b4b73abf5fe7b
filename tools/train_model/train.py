#!/usr/bin/env python3
"""Trains a model by a configuration (configs/*.json), from its last checkpoint if there is one.

Every sequence is drawn from (seed, step, index in the batch), so that an interrupted and resumed
run equals an uninterrupted one. Log: one JSON object per line in OUT/log.jsonl. SIGTERM and SIGINT
save a checkpoint and end. After SIGKILL the run continues from the previous checkpoint, and the
log is cut back to it.
"""
import argparse
import bisect
import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import time

import numpy as np
import torch

import checkpoint
import cuda_graphs
import documents
import evaluation
import model
import optimizer
import tasks
import tokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Plan:
    """The schedule of a run. `scale` stretches every stage, for a run in more or less time."""

    def __init__(self, config, scale=1.0):
        self.config, self.stages = config, config["stages"]
        steps = [max(1, round(s["tokens"] * scale / s["batch_tokens"])) for s in self.stages]
        self.ends = np.cumsum(steps).tolist()

    @property
    def steps(self):
        return self.ends[-1]

    def number(self, step):
        return min(bisect.bisect_right(self.ends, step), len(self.stages) - 1)

    def stage(self, step):
        return self.stages[self.number(step)]

    def end_stage(self, step):
        """Ends the stage of `step` after that step; later stages keep their lengths."""
        n = self.number(step)
        early = self.ends[n] - (step + 1)
        self.ends = self.ends[:n] + [e - early for e in self.ends[n:]]

    def rate(self, step):
        """Warm-up, then constant, then linear decay to 2 % over the last `decay` of the steps."""
        left = (self.steps - step) / max(1, self.steps * self.config["decay"])
        return min(1.0, (step + 1) / self.config["warmup_steps"]) * max(0.02, min(1.0, left))

    def length(self, step):
        """Most steps have the stage's length, the others a shorter one from the stage's list."""
        stage = self.stage(step)
        rng = tasks.generator(self.config["seed"], "length", step)
        return rng.choice(stage["shorter"]) if stage["shorter"] and rng.random() < 0.3 else stage["length"]


class Batches(torch.utils.data.Dataset):
    """The batch of each step, as (ids [n, length + 1], weights, answers)."""

    def __init__(self, plan, tok, ids):
        self.plan, self.tok, self.corpus = plan, tok, documents.Corpus(ids, tok)

    def __len__(self):
        return self.plan.steps

    def __getitem__(self, step):
        stage, length = self.plan.stage(step), self.plan.length(step)
        sampler = tasks.Sampler(self.tok, self.corpus, share=stage["answer_share"])
        drawn = [sampler.sequence(tasks.generator(self.plan.config["seed"], step, n), length, stage["mixture"])
                 for n in range(max(1, stage["batch_tokens"] // length))]
        ids = torch.from_numpy(np.stack([d[0] for d in drawn]).astype(np.int32))
        return ids, torch.from_numpy(np.stack([d[1] for d in drawn])), [d[2] for d in drawn]


def batches(data, start, workers):
    """The batches from step `start` on, made ahead by worker processes if there are any."""
    if not workers:
        return (data[n] for n in range(start, len(data)))
    return iter(torch.utils.data.DataLoader(data, batch_size=None, sampler=range(start, len(data)), num_workers=workers,
                                            collate_fn=as_it_is, prefetch_factor=4))


def as_it_is(x):
    return x


class Tally:
    """Loss and answers since the last log line. "exact": all ids of the answer are right; "ids":
    share of right ids."""

    def __init__(self):
        self.loss, self.exact, self.ids = [], collections.defaultdict(list), collections.defaultdict(list)
        self.tokens, self.start, self.cpu = 0, time.time(), time.process_time()

    def add(self, loss, correct, answers):
        self.loss.append(loss)
        self.tokens += correct.size
        for row, found in zip(correct, answers):
            for a in found:
                hit = row[a.start - 1:a.end - 1]
                self.exact[a.task].append(hit.all())
                self.ids[a.task].append(hit.mean())

    def report(self):
        def means(x):
            return {k: round(float(np.mean(v)), 3) for k, v in sorted(x.items())}
        return {"loss": round(float(np.mean(self.loss)), 4),
                "tokens_per_second": round(self.tokens / (time.time() - self.start)),
                "tokens_per_cpu_second": round(self.tokens / (time.process_time() - self.cpu)),
                "exact": means(self.exact), "ids": means(self.ids)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default=HERE / "configs/s.json", type=pathlib.Path)
    parser.add_argument("--data", default=ROOT / "build/train/data", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="default: build/train/NAME")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--workers", type=int, default=0, help="processes that make batches")
    parser.add_argument("--scale", type=float, default=1.0, help="stretch of every stage's token count")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="save and end after so long")
    parser.add_argument("--steps", type=int, help="save and end at this step")
    parser.add_argument("--graphs", action="store_true", help="record a step once per shape of a batch and replay it (GPU)")
    parser.add_argument("--compile", action="store_true", help="fuse the layer with torch.compile (GPU)")
    parser.add_argument("--start-weights", type=pathlib.Path, help="folder of checkpoint.pack(): go on from its weights, with a fresh optimizer")
    parser.add_argument("--pack", type=pathlib.Path, help="folder for float16 weights, written with every checkpoint")
    parser.add_argument("--no-eval", action="store_true")
    args = parser.parse_args()
    if args.graphs and args.device != "cuda":
        parser.error(f"--graphs records what runs on a GPU; the device is {args.device}: leave it out, or --device cuda where there is one")
    return args


def make_ops(args):
    if args.device == "cuda":
        torch.set_float32_matmul_precision("high")
        if args.compile:  # run uncompiled what torch.compile cannot handle
            torch._dynamo.config.suppress_errors = True
        return model.TorchOps("cuda", args.compile)
    from cpu_ops import CpuOps
    return CpuOps(ROOT / "build/train", args.threads)


class Training:
    def __init__(self, args):
        self.args, self.config = args, json.loads(args.config.read_text())
        self.out = args.out or ROOT / "build/train" / self.config["name"]
        self.out.mkdir(parents=True, exist_ok=True)
        self.shape, self.plan = model.Shape(**self.config["shape"]), Plan(self.config, args.scale)
        if not (args.data / "tokenizer.json").exists():
            raise SystemExit(f"{args.data}: no tokenizer.json there; prepare.py --out {args.data} writes it (README.md, Setting up)")
        self.tok = tokenizer.Tokenizer.load(args.data / "tokenizer.json")
        if len(self.tok.tokens) != self.shape.vocab:
            raise SystemExit(f"{args.data}: vocabulary of {len(self.tok.tokens)}, the configuration wants {self.shape.vocab}")
        self.ops = make_ops(args)
        self.cuda = args.device == "cuda"
        self.update = self.forward_backward_update
        if args.graphs:
            self.update = cuda_graphs.Replayed(self.update)
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        start = model.start_values(self.shape, self.config["seed"], self.config["induction_head"])
        if args.start_weights and not (self.out / "last.pt").exists():
            start, meta = checkpoint.unpack(args.start_weights)
            self.step, self.tokens, self.seconds, self.plan.ends = (meta[k] for k in ("step", "tokens", "seconds", "ends"))
        self.p = {k: v.to(args.device).requires_grad_(True) for k, v in start.items()}
        self.optimizer = optimizer.Optimizer(self.p, self.config["optimizer"], self.ops)
        if (self.out / "last.pt").exists():
            state = checkpoint.load(self.out / "last.pt")
            if (state["config"], state["scale"]) != (self.config, args.scale):
                raise SystemExit(f"{self.out}/last.pt is of another configuration or --scale: give another --out, or the "
                                 "ones it was begun with")
            self.plan.ends = state["ends"]
            for k, v in state["p"].items():
                self.p[k].data.copy_(v)
            self.optimizer.load(state["optimizer"])
            self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]
            self.cut_log()
        held = documents.Corpus(np.load(args.data / "held.npy"), self.tok)
        ops = model.TorchOps("cuda") if self.cuda else self.ops  # every length occurs once: not worth compiling
        run = evaluation.runner(self.p, self.shape, ops, args.device, self.autocast)
        self.evaluator = evaluation.Evaluator(self.tok, held, run, batch_tokens=65536 if self.cuda else 8192)

    def autocast(self):
        return torch.autocast("cuda", torch.bfloat16) if self.cuda else contextlib.nullcontext()

    def cut_log(self):
        """Removes lines logged after the checkpoint by a killed process, and an incomplete last
        line.
        """
        path = self.out / "log.jsonl"
        kept = []
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                kept += [line] if json.loads(line)["step"] <= self.step else []
            except json.JSONDecodeError:
                pass
        path.with_suffix(".tmp").write_text("".join(line + "\n" for line in kept))
        os.replace(path.with_suffix(".tmp"), path)

    def log(self, kind, **fields):
        line = json.dumps({"kind": kind, "step": self.step, "tokens": self.tokens, "seconds": round(self.seconds, 1), **fields})
        with open(self.out / "log.jsonl", "a") as f:
            f.write(line + "\n")
        print(line, flush=True)

    def save(self):
        p = {k: v.detach() for k, v in self.p.items()}
        checkpoint.save(self.out / "last.pt", {"p": p, "optimizer": self.optimizer.state(), "step": self.step,
                                               "tokens": self.tokens, "seconds": self.seconds, "config": self.config,
                                               "scale": self.args.scale, "ends": self.plan.ends})
        if self.args.pack:
            checkpoint.pack(self.args.pack, p, {"step": self.step, "tokens": self.tokens, "seconds": self.seconds, "ends": self.plan.ends})
            shutil.copy(self.out / "log.jsonl", self.args.pack)

    def evaluate(self):
        started = time.time()
        self.log("eval", **self.evaluator.short_report(**self.config["eval"]), eval_seconds=round(time.time() - started, 1))

    def has_learned(self):
        """Whether the task of the stage's "until" is answered well enough on held-out text; logged.

        Depends on weights and step only, so that a resumed run decides like an uninterrupted one.
        """
        until = self.plan.stage(self.step - 1).get("until")
        if not until or self.step % until["every_steps"] or self.step in self.plan.ends:
            return False
        found = self.evaluator.accuracy(until["task"], self.plan.stage(self.step - 1)["length"], until["documents"], False)
        self.log("until", task=until["task"], right=round(found[until["task"]], 3), wanted=until["right"])
        return found[until["task"]] >= until["right"]

    def round_matrices(self):
        """Rounds the weights to float16, so that the F16 file holds them exactly. Products ran in
        bfloat16, which is coarser."""
        for v in self.p.values():
            if v.dim() == 2:
                v.data.copy_(v.data.half())

    def train_step(self, ids, weights):
        """Returns loss and correct, both still on the device."""
        ids, weights = ids.to(self.args.device, non_blocking=True).long(), weights.to(self.args.device, non_blocking=True)
        torch.manual_seed(self.config["seed"] * 1_000_003 + self.step)  # dropout
        return self.update(ids, weights, self.optimizer.rates(self.step + 1, self.plan.rate(self.step)))

    def forward_backward_update(self, ids, weights, rates):
        with self.autocast():
            loss, _, correct = model.loss(self.p, ids[:, :-1].contiguous(), ids[:, 1:].contiguous(),
                                          weights[:, 1:].contiguous(), self.shape, self.ops, self.config["dropout"])
        loss.backward()
        self.optimizer.step(rates)
        return loss.detach(), correct

    def run(self):
        stopping = []
        for s in (signal.SIGTERM, signal.SIGINT):
            signal.signal(s, lambda *_: stopping.append(True))
        data = Batches(self.plan, self.tok, np.load(self.args.data / "train.npy"))
        self.log("start", config=self.config["name"], parameters=sum(v.numel() for v in self.p.values()),
                 steps=self.plan.steps, products=self.ops.products, threads=self.args.threads)
        began, before = time.time(), self.seconds
        saved, evaluated = time.time(), self.tokens
        tally, waiting = Tally(), []
        source = batches(data, self.step, self.args.workers)
        while self.step < min(self.plan.steps, self.args.steps or self.plan.steps):
            if stopping or time.time() - began > self.args.seconds:
                break
            ids, weights, answers = next(source)
            waiting.append((*self.train_step(ids, weights), answers))
            self.step, self.tokens = self.step + 1, self.tokens + weights[:, 1:].numel()
            self.seconds = before + time.time() - began
            if self.step % self.config["log_every"] == 0:  # waits for the GPU only here
                for loss, correct, found in waiting:
                    tally.add(loss.item(), correct.cpu().numpy(), found)
                self.log("train", length=ids.shape[1] - 1, rate=round(self.plan.rate(self.step), 4), **tally.report())
                tally, waiting = Tally(), []
            if self.has_learned():
                self.plan.end_stage(self.step - 1)
                source = batches(data, self.step, self.args.workers)  # drop the batches made ahead
            if time.time() - saved > self.config["save_seconds"]:
                self.save()
                saved = time.time()
            if not self.args.no_eval and self.tokens - evaluated > self.config["eval_tokens"]:
                self.evaluate()
                evaluated = self.tokens
        done = self.step >= self.plan.steps
        if done:
            self.round_matrices()
        self.save()
        if done and not self.args.no_eval:
            self.evaluate()
        self.log("done" if done else "paused")


if __name__ == "__main__":
    Training(arguments()).run()
