"""Muon for the matrices of the layers, Adam for embeddings and norms. The state is plain tensors.
"""
import torch


def orthogonalised(g, product):
    """Five Newton-Schulz steps, which give about U V^T of the singular value decomposition. g [..,
    rows, cols]."""
    tall = g.shape[-2] > g.shape[-1]
    x = (g.mT if tall else g).contiguous()
    x = x / (x.float().pow(2).sum((-2, -1), keepdim=True).sqrt() + 1e-7).to(x.dtype)
    for _ in range(5):
        a = product(x, x, tb=True)
        b = -4.7750 * a + 2.0315 * product(a, a)
        x = 3.4445 * x + product(b, x)
    return x.mT if tall else x


class Optimizer:
    def __init__(self, p, settings, ops):
        """settings: muon_rate, adam_rate, weight_decay."""
        self.p, self.set, self.ops = p, settings, ops
        self.matrices = [k for k, v in p.items() if v.dim() == 2 and k != "emb"]
        self.others = [k for k in p if k not in self.matrices]
        self.first = {k: torch.zeros_like(v) for k, v in p.items()}
        self.second = {k: torch.zeros_like(p[k]) for k in self.others}
        self.stacked = p["emb"].is_cuda

    def state(self):
        return {"first": self.first, "second": self.second}

    def load(self, state):
        for mine, saved in ((self.first, state["first"]), (self.second, state["second"])):
            for k, v in saved.items():
                mine[k].copy_(v)

    def rates(self, n, factor):
        """The four rates that step() needs at step n (from 1), scaled by `factor`."""
        muon, adam = self.set["muon_rate"] * factor, self.set["adam_rate"] * factor
        return muon, 1 - muon * self.set["weight_decay"], adam / (1 - 0.9 ** n), 1 / (1 - 0.98 ** n)

    @torch.no_grad()
    def step(self, rates):
        """Updates all parameters and clears the gradients. rates: the result of rates(), as
        numbers, or as tensors if the step is recorded as a graph."""
        muon, keep, adam, second = rates
        groups = {}
        for k in self.matrices:
            g = self.p[k].grad
            self.first[k].lerp_(g, 0.05)
            update = g.lerp(self.first[k], 0.95)
            for part in update.chunk(2) if k.endswith(".gu") else (update,):  # gate and up are two matrices
                groups.setdefault(part.shape, []).append((k, part))
        done = {}
        for (rows, cols), members in groups.items():
            scale = max(1.0, rows / cols) ** 0.5
            if self.stacked:
                parts = orthogonalised(torch.stack([m for _, m in members]).bfloat16(), self.ops.product).float()
            else:
                parts = [orthogonalised(m, self.ops.product) for _, m in members]
            for (k, _), part in zip(members, parts):
                done.setdefault(k, []).append(part * scale)
        for k, parts in done.items():
            self.p[k].mul_(keep).sub_((torch.cat(parts) if len(parts) > 1 else parts[0]) * muon)
        for k in self.others:
            g = self.p[k].grad
            self.first[k].lerp_(g, 0.1)
            self.second[k].lerp_(g * g, 0.02)
            root = (self.second[k] * second).sqrt_().add_(1e-8)
            self.p[k].sub_(self.first[k] / root * adam)
        for v in self.p.values():
            v.grad = None
