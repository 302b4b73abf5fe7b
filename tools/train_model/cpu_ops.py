"""The operations of model.py on CPU cores: kernels.cc through ctypes, with gradients.

Sequence lengths and matrix sizes are multiples of 32. Products run in bfloat16 on AMX tiles or
AVX-512 if the CPU has them, else in float32 on OpenBLAS (`CpuOps.products` says which).
"""
import ctypes
import hashlib
import os
import pathlib
import subprocess

import torch

from model import layer, rope_table

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = ("kernels.cc", "kernels_bf16.h", "kernels_amx.h", "kernels_avx512.h", "kernels_blas.h")
PRODUCTS = ("openblas-f32", "amx-bf16", "avx512-bf16")  # indexed by the result of kernels_init
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC", "-Wno-maybe-uninitialized"]


def build(folder, extra=()):
    """Compiles kernels.cc into `folder`, unless the same sources, flags and CPU were compiled there
    before."""
    cpu = next((x for x in open("/proc/cpuinfo") if x.startswith("flags")), "")
    key = hashlib.sha256("".join((HERE / s).read_text() for s in SOURCES).encode() + cpu.encode()
                         + " ".join([*FLAGS, *extra]).encode()).hexdigest()[:16]
    out = pathlib.Path(folder) / f"kernels-{key}.so"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_suffix(f".{os.getpid()}")
        bf16 = "avx512_bf16" in cpu and "-mno-avx512bf16" not in extra
        blas = [] if bf16 else ["-l:libopenblas.so.0"]
        subprocess.run(["g++", *FLAGS, *extra, str(HERE / "kernels.cc"), "-o", str(temporary), *blas], check=True)
        temporary.rename(out)
    return out


def _p(t):
    if t is None:
        return None
    assert t.is_contiguous() and t.dtype in (torch.float32, torch.int32), (t.dtype, t.stride())
    return ctypes.c_void_p(t.data_ptr())


class CpuOps:
    """One per process. `folder`: folder of the compiled kernels; `extra`: further compiler flags
    (tests)."""

    def __init__(self, folder, threads, extra=()):
        for option, value in ((-4, 0), (-1, 2**31 - 1)):  # M_MMAP_MAX, M_TRIM_THRESHOLD: keep freed memory, its
            ctypes.CDLL(None).mallopt(option, value)  # pages are touched again at the next step
        self.lib = lib = ctypes.CDLL(str(build(folder, extra)))
        code = lib.kernels_init(threads)
        if code < 0:
            raise RuntimeError("kernels: the CPU has AMX but the system refuses its tiles")
        self.products = PRODUCTS[code]
        self.tables = {}
        self.layer = layer
        torch.set_num_threads(threads)
        torch.set_flush_denormal(True)

        class Linear(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return self.product(x.view(-1, x.shape[-1]), w, tb=True).view(*x.shape[:-1], w.shape[0])

            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                flat = g.contiguous().view(-1, w.shape[0])
                gx = self.product(flat, w).view_as(x)
                return gx, self.product(flat, x.view(-1, x.shape[-1]), ta=True)

        class Rms(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w, eps):
                n, c = x.numel() // x.shape[-1], x.shape[-1]
                y, inverse = torch.empty_like(x), torch.empty(n)
                lib.rms_forward(_p(x), _p(w), _p(y), _p(inverse), n, c, ctypes.c_float(eps))
                ctx.save_for_backward(x, w, inverse)
                return y

            @staticmethod
            def backward(ctx, g):
                x, w, inverse = ctx.saved_tensors
                gx, gw = torch.empty_like(x), torch.zeros_like(w)
                lib.rms_backward(_p(x), _p(w), _p(inverse), _p(g.contiguous()), _p(gx), _p(gw), len(inverse),
                                 x.shape[-1])
                return gx, gw, None

        class SwiGlu(torch.autograd.Function):
            @staticmethod
            def forward(ctx, gate_up):
                f = gate_up.shape[-1] // 2
                y = torch.empty(*gate_up.shape[:-1], f)
                lib.swiglu_forward(_p(gate_up), _p(y), y.numel() // f, f)
                ctx.save_for_backward(gate_up)
                return y

            @staticmethod
            def backward(ctx, g):
                (gate_up,) = ctx.saved_tensors
                f = gate_up.shape[-1] // 2
                out = torch.empty_like(gate_up)
                lib.swiglu_backward(_p(gate_up), _p(g.contiguous()), _p(out), gate_up.numel() // (2 * f), f)
                return out

        class Attention(torch.autograd.Function):
            @staticmethod
            def forward(ctx, q, k, v, table):
                b, t, h, d = q.shape
                o, lse = torch.empty_like(q), torch.empty(b, h, t)
                lib.attention_forward(_p(q), _p(k), _p(v), _p(o), _p(lse), _p(table), b, t, h, k.shape[2], d)
                ctx.save_for_backward(q, k, v, o, lse, table)
                return o

            @staticmethod
            def backward(ctx, go):
                q, k, v, o, lse, table = ctx.saved_tensors
                b, t, h, d = q.shape
                gq, gk, gv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
                lib.attention_backward(_p(q), _p(k), _p(v), _p(o), _p(lse), _p(table), _p(go.contiguous()), _p(gq),
                                       _p(gk), _p(gv), b, t, h, k.shape[2], d)
                return gq, gk, gv, None

        class HeadLoss(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, embedding, target, weight, train):
                n, c = x.shape
                nll, correct = torch.empty(n), torch.empty(n, dtype=torch.int32)
                gx = torch.empty_like(x) if train else None
                ge = torch.zeros_like(embedding) if train else None
                lib.head_loss(_p(x), _p(embedding), _p(target), _p(weight), _p(nll), _p(correct), _p(gx), _p(ge), n,
                              c, embedding.shape[0])
                ctx.gradients = gx, ge
                ctx.mark_non_differentiable(correct)
                return (nll * weight).sum(), nll, correct

            @staticmethod
            def backward(ctx, g, _nll, _correct):
                gx, ge = ctx.gradients
                return gx * g, ge * g, None, None, None

        self._linear, self._rms, self._swiglu = Linear.apply, Rms.apply, SwiGlu.apply
        self._attention, self._head_loss = Attention.apply, HeadLoss.apply

    def product(self, a, b, ta=False, tb=False):
        """a @ b of two contiguous matrices; ta, tb: the matrix is stored transposed."""
        m, k = (a.shape[1], a.shape[0]) if ta else a.shape
        n = b.shape[0] if tb else b.shape[1]
        assert (b.shape[1] if tb else b.shape[0]) == k and not (m % 32 or n % 32 or k % 32), (a.shape, b.shape)
        c = torch.empty(m, n)
        self.lib.matmul(_p(a), _p(b), _p(c), m, n, k, int(ta), int(tb), 0)
        return c

    def rms(self, x, w, eps):
        return self._rms(x.contiguous(), w, eps)

    def linear(self, x, w):
        return self._linear(x.contiguous(), w)

    def swiglu(self, gate_up):
        return self._swiglu(gate_up.contiguous())

    def table(self, length, d, theta):
        key = (length, d, theta)
        if key not in self.tables:
            self.tables[key] = rope_table(length, d, theta)
        return self.tables[key]

    def attention(self, q, k, v, table):
        return self._attention(q.contiguous(), k.contiguous(), v.contiguous(), table)

    def head_loss(self, x, embedding, target, weight):
        """Returns sum(weight * nll), nll, and correct (the target has the largest logit). x [n, c],
        the others [n]."""
        return self._head_loss(x.contiguous(), embedding, target.int().contiguous(), weight.contiguous(),
                               torch.is_grad_enabled())
