"""Checkpoints on disk, and packed weights: float16 files small enough to copy around."""
import json
import os
import pathlib

import numpy as np
import torch


def save(path, state):
    """Writes a temporary file and renames it: after an interruption the old or the new checkpoint
    is complete."""
    path = pathlib.Path(path)
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def load(path):
    return torch.load(path, map_location="cpu")


def pack(folder, p, meta, part_bytes=15 << 20):
    """Writes weights.json and weights.0.f16, weights.1.f16, ... of at most part_bytes each. `meta`
    goes into weights.json."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(v.detach().float().cpu().numpy().astype(np.float16).tobytes() for v in p.values())
    parts = range(0, len(data), part_bytes)
    for n, start in enumerate(parts):
        (folder / f"weights.{n}.f16").write_bytes(data[start:start + part_bytes])
    (folder / "weights.json").write_text(json.dumps(
        {**meta, "parts": len(parts), "tensors": {k: list(v.shape) for k, v in p.items()}}))


def unpack(folder):
    """The float32 weights and meta that pack() wrote."""
    folder = pathlib.Path(folder)
    meta = json.loads((folder / "weights.json").read_text())
    data = np.frombuffer(b"".join((folder / f"weights.{n}.f16").read_bytes() for n in range(meta["parts"])), np.float16)
    p, at = {}, 0
    for name, size in meta["tensors"].items():
        n = int(np.prod(size))
        p[name] = torch.from_numpy(data[at:at + n].astype(np.float32).reshape(size).copy())
        at += n
    if at != len(data):
        raise ValueError(f"{folder}: {len(data)} values, weights.json names {at}")
    return p, meta
