"""A Llama-architecture model as plain tensors and functions, and its initial values, with or
without an induction head.

The operations come from an object (`ops`): TorchOps below runs wherever PyTorch runs (on a GPU, or
as the float32 reference), CpuOps in cpu_ops.py is fast on CPUs. RoPE uses interleaved pairs, as
GGUF's `llama` expects, so the export does not change weights.
"""
import dataclasses
import math

import torch
import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class Shape:
    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int
    theta: float = 500000.0  # with head_dim 32 half of the pairs rotate by less than a radian over 1000 tokens
    eps: float = 1e-5
    qk_norm: bool = False  # RMS norm of queries and keys before RoPE; the architecture is then qwen3

    @property
    def architecture(self):
        """Name in GGUF."""
        return "qwen3" if self.qk_norm else "llama"

    def __post_init__(self):
        assert self.heads % self.kv_heads == 0
        assert all(n % 32 == 0 for n in (self.dim, self.head_dim, self.ffn, self.vocab, self.kv_heads * self.head_dim))


def rope_table(length, d, theta):
    """[length, d] float32: cos, sin per pair."""
    f = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    a = torch.arange(length, dtype=torch.float64)[:, None] * f[None]
    return torch.stack([a.cos(), a.sin()], -1).reshape(length, d).float().contiguous()


class TorchOps:
    """Plain PyTorch. Under autocast the products run in bfloat16. compiled: fuse the layer with torch.compile."""

    def __init__(self, device, compiled=False):
        self.device = device
        self.tables = {}
        self.products = f"torch {torch.__version__} on {device}" + (", compiled" if compiled else "")
        self.layer = torch.compile(layer, dynamic=False) if compiled else layer

    def table(self, length, d, theta):
        key = (length, d, theta)
        if key not in self.tables:
            self.tables[key] = rope_table(length, d, theta).to(self.device)
        return self.tables[key]

    def product(self, a, b, ta=False, tb=False):
        """a @ b, also for stacks of matrices."""
        return (a.mT if ta else a) @ (b.mT if tb else b)

    def rms(self, x, w, eps):
        y = x.float()
        if hasattr(F, "rms_norm"):  # PyTorch 2.4; one kernel from 2.9 on
            return F.rms_norm(y, w.shape, w, eps).to(x.dtype)
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * w).to(x.dtype)

    def linear(self, x, w):
        return F.linear(x, w)

    def swiglu(self, gate_up):
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up

    def attention(self, q, k, v, table):
        b, t, h, d = q.shape
        cs = table.view(1, t, 1, d // 2, 2)

        def rotate(x):
            u, w = x.float().view(b, t, -1, d // 2, 2).unbind(-1)
            c, s = cs[..., 0], cs[..., 1]
            return torch.stack([u * c - w * s, u * s + w * c], -1).view(x.shape).to(v.dtype).transpose(1, 2)

        q, k, v = rotate(q), rotate(k), v.transpose(1, 2)
        if q.is_cuda:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
        group = h // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        s = q @ k.transpose(-1, -2) / math.sqrt(d)
        s = s.masked_fill(torch.ones(t, t, device=q.device).triu(1).bool(), float("-inf")).softmax(-1)
        return (s @ v).transpose(1, 2)

    def head_loss(self, x, embedding, target, weight):
        """Returns sum(weight * nll), nll, and correct (the target has the largest logit). x [n, c],
        the others [n]."""
        logits = F.linear(x, embedding).float()
        nll = F.cross_entropy(logits, target, reduction="none")
        with torch.no_grad():
            correct = (logits.gather(1, target[:, None])[:, 0] >= logits.amax(-1)).int()
        return (nll * weight).sum(), nll, correct


def layer(x, n1, q, k, v, o, n2, gu, d, qn, kn, table, shape, ops, dropout):
    """One transformer layer. The weights are arguments, so that one compiled graph serves all
    layers.

    qn, kn: weights of the norms of queries and keys, or None.
    """
    b, t, _ = x.shape
    y = ops.rms(x, n1, shape.eps)
    heads = [ops.linear(y, w).view(b, t, n, shape.head_dim)
             for w, n in ((q, shape.heads), (k, shape.kv_heads), (v, shape.kv_heads))]
    if shape.qk_norm:
        heads[:2] = ops.rms(heads[0], qn, shape.eps), ops.rms(heads[1], kn, shape.eps)
    y = ops.linear(ops.attention(*heads, table).reshape(b, t, -1), o)
    x = x + (F.dropout(y, dropout) if dropout else y)
    y = ops.linear(ops.swiglu(ops.linear(ops.rms(x, n2, shape.eps), gu)), d)
    return x + (F.dropout(y, dropout) if dropout else y)


def hidden(p, ids, shape, ops, dropout=0.0):
    """ids int64 [batch, length] -> [batch, length, dim] after the last norm. p: name -> tensor."""
    x = F.embedding(ids, p["emb"])
    table = ops.table(ids.shape[1], shape.head_dim, shape.theta)
    for i in range(shape.layers):
        weights = [p.get(f"{i}.{name}") for name in ("n1", "q", "k", "v", "o", "n2", "gu", "d", "qn", "kn")]
        x = ops.layer(x, *weights, table, shape, ops, dropout)
    return ops.rms(x, p["norm"], shape.eps)


def loss(p, ids, target, weight, shape, ops, dropout=0.0):
    """Weighted mean loss (weight [batch, length] >= 0); nll and correct [batch, length]."""
    x = hidden(p, ids, shape, ops, dropout).reshape(-1, shape.dim)
    w = weight.reshape(-1)
    total, nll, correct = ops.head_loss(x, p["emb"], target.reshape(-1), w / w.sum().clamp(min=1e-6))
    return total, nll.detach().view(ids.shape), correct.view(ids.shape)


def logits(p, ids, shape):
    """Float32 reference, [batch, length, vocab]."""
    return F.linear(hidden(p, ids, shape, TorchOps(ids.device)), p["emb"])


def start_values(shape, seed, induction_head=True):
    """Random initial values, with an induction head if asked for. Training may change all of them.
    """
    g = torch.Generator().manual_seed(seed)
    dim, heads, kv, hd, ffn = shape.dim, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn

    def normal(*size, std):
        return torch.randn(*size, generator=g) * std

    p = {"emb": normal(shape.vocab, dim, std=0.08), "norm": torch.ones(dim)}
    p["emb"][:, 0] = 0.4  # a constant channel, which replaces a bias for heads that look n tokens back
    for i in range(shape.layers):
        p[f"{i}.n1"], p[f"{i}.n2"] = torch.ones(dim), torch.ones(dim)
        if shape.qk_norm:
            p[f"{i}.qn"], p[f"{i}.kn"] = torch.ones(hd), torch.ones(hd)
        for name, rows in (("q", heads * hd), ("k", kv * hd), ("v", kv * hd), ("gu", 2 * ffn)):
            p[f"{i}.{name}"] = normal(rows, dim, std=0.5 / math.sqrt(dim))
        p[f"{i}.o"] = normal(dim, heads * hd, std=(0.2 if i == 0 else 0.05) / math.sqrt(dim))
        p[f"{i}.d"] = normal(dim, ffn, std=0.05 / math.sqrt(ffn))
    if induction_head:
        plant_induction_head(p, shape, normal)
    return {name: x.contiguous() for name, x in p.items()}


def plant_induction_head(p, shape, normal):
    """Sets up an induction head. Without it, model S did not learn recall in the available time.

    (a) Query/key columns on the constant channel make head h of layer 0 attend h + 1 tokens back,
    through RoPE. (b) In layer 1, in the slow half of the head, the keys read what such a head
    wrote and the queries read the current token in the same way. (c) Values and output copy the
    attended token. Without (c) the effect is lost: the optimizer overwrites (b) before copying is
    learned.
    """
    dim, heads, kv, hd = shape.dim, shape.heads, shape.kv_heads, shape.head_dim
    # (a)
    speed = shape.theta ** (-torch.arange(0, hd, 2).float() / hd)
    strength, pairs = 1.24 * math.sqrt(math.sqrt(hd / 32)), range(6 * hd // 32)
    q, k = p["0.q"], p["0.k"]
    q.mul_(0.1)
    k.mul_(0.1)
    for j in pairs:
        k.view(kv, hd, dim)[:, 2 * j, 0] += strength
        for h in range(heads):
            q[h * hd + 2 * j, 0] += strength * math.cos((h + 1) * speed[j])
            q[h * hd + 2 * j + 1, 0] -= strength * math.sin((h + 1) * speed[j])
    # (b), (c): KV head `to` of layer 1 matches through head `source` of layer 0.
    slow, group = hd // 2, heads // kv
    for to, source in ((0, 0), (1, group)):
        read = p["0.v"][to * hd + slow:(to + 1) * hd].clone()
        read[:, 0] = 0
        wrote = p["0.o"][:, source * hd + slow:(source + 1) * hd]
        wrote.mul_(2.0)
        copy = torch.linalg.qr(normal(dim, hd, std=1.0))[0]
        copy[0] = 0
        p["1.k"][to * hd + slow:(to + 1) * hd] = 2.0 * wrote.t() / wrote.norm(dim=0)[:, None]
        p["1.v"][to * hd:(to + 1) * hd] = copy.t()
        for h in range(to * group, (to + 1) * group):
            p["1.q"][h * hd + slow:(h + 1) * hd] = 2.0 * read / read.norm(dim=1)[:, None]
            p["1.o"][:, h * hd:(h + 1) * hd] = 0.3 * copy
