"""The kernels against plain PyTorch in float32: loss and all gradients, in bfloat16 and on BLAS if
the CPU supports both."""
import os
import pathlib
import tempfile

import pytest
import torch

import model
from cpu_ops import CpuOps

SHAPES = [model.Shape(dim=64, layers=2, heads=4, kv_heads=2, head_dim=32, ffn=96, vocab=128, context=320),
          model.Shape(dim=64, layers=2, heads=4, kv_heads=1, head_dim=64, ffn=96, vocab=128, context=320, qk_norm=True),
          model.Shape(dim=64, layers=2, heads=2, kv_heads=2, head_dim=64, ffn=96, vocab=128, context=320)]
CACHE = pathlib.Path(os.environ.get("WINNOW_TRAIN_CACHE", tempfile.gettempdir())) / "winnow-train-kernels"


def gradients(ops, shape, p, ids, target, weight):
    p = {k: v.clone().requires_grad_(True) for k, v in p.items()}
    total, nll, correct = model.loss(p, ids, target, weight, shape, ops)
    total.backward()
    return total.item(), nll, correct, {k: v.grad for k, v in p.items()}


# In plain PyTorch, rounding the operands to bfloat16 changes these gradients by 2 to 8 %; float32
# agrees up to rounding.
@pytest.mark.parametrize("extra,tolerance", [((), 0.12), (("-mno-avx512bf16", "-mno-amx-bf16"), 1e-4)])
@pytest.mark.parametrize("shape", SHAPES)
def test_loss_and_gradients_agree_with_torch(shape, extra, tolerance):
    ops = CpuOps(CACHE, 2, extra)
    if ops.products == "openblas-f32":
        tolerance = 1e-4
    g = torch.Generator().manual_seed(3)
    p = model.start_values(shape, 1, induction_head=shape is SHAPES[0])
    for name in p:
        p[name] = p[name] + 0.02 * torch.randn(p[name].shape, generator=g)
    ids, target = (torch.randint(0, shape.vocab, (2, 320), generator=g) for _ in range(2))
    weight = torch.rand(2, 320, generator=g)
    got, want = (gradients(o, shape, p, ids, target, weight) for o in (ops, model.TorchOps("cpu")))
    assert got[0] == pytest.approx(want[0], rel=tolerance / 4)
    assert (got[1] - want[1]).abs().max() < 2 * tolerance
    assert (got[2] == want[2]).float().mean() > 0.98
    for name, x in want[3].items():
        error = (got[3][name] - x).norm() / x.norm()
        assert error < tolerance, (name, error.item())


@pytest.mark.parametrize("shape", SHAPES)
def test_plain_torch_under_autocast_as_on_a_gpu(shape):
    g = torch.Generator().manual_seed(3)
    p = model.start_values(shape, 1, induction_head=shape is SHAPES[0])
    ids, target = (torch.randint(0, shape.vocab, (2, 320), generator=g) for _ in range(2))
    weight = torch.rand(2, 320, generator=g)
    want = gradients(model.TorchOps("cpu"), shape, p, ids, target, weight)
    with torch.autocast("cpu", torch.bfloat16):
        got = gradients(model.TorchOps("cpu"), shape, p, ids, target, weight)
    assert got[0] == pytest.approx(want[0], rel=0.02)
    for name, x in want[3].items():
        assert (got[3][name].float() - x).norm() / x.norm() < 0.25, name  # all activations are bfloat16


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_product_in_every_storage_order(ta, tb):
    ops = CpuOps(CACHE, 1)
    a, b = torch.randn((96, 1120)), torch.randn((1120, 160))
    got = ops.product(a.t().contiguous() if ta else a, b.t().contiguous() if tb else b, ta, tb)
    assert (got - a @ b).norm() / (a @ b).norm() < 5e-3
