"""An interrupted and resumed run equals an uninterrupted one; weights survive packing and export.
"""
import copy
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import checkpoint
import model
import train
from test_tasks import TEXT, TOK

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = {
    "name": "tiny", "seed": 3, "induction_head": True,
    "shape": {"dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 32, "ffn": 96, "vocab": 1024, "context": 256},
    "optimizer": {"muon_rate": 0.01, "adam_rate": 0.003, "weight_decay": 0.05}, "warmup_steps": 2, "decay": 0.5, "dropout": 0.1,
    "log_every": 2, "save_seconds": 1000, "eval_tokens": 1000000,
    "eval": {"lengths": [192, 256], "documents": 2, "tasks_length": 256, "task_names": ["copy", "quote"], "windows": 8},
    "stages": [{"length": 128, "tokens": 1024, "batch_tokens": 256, "answer_share": 0.3, "shorter": [64], "mixture": {"needle": 1, "book": 1}},
               {"length": 256, "tokens": 2048, "batch_tokens": 512, "answer_share": 0.3, "shorter": [], "mixture": {"copy": 1, "quote": 1}}]}


@pytest.fixture
def folder(tmp_path):
    assert len(TOK.tokens) == 1024
    TOK.save(tmp_path / "tokenizer.json")
    for name in ("train", "held"):
        np.save(tmp_path / f"{name}.npy", np.array(TOK.encode(TEXT), dtype=np.uint16))
    (tmp_path / "tiny.json").write_text(json.dumps(CONFIG))
    return tmp_path


def command(folder, out, *flags):
    return {"args": [sys.executable, str(HERE / "train.py"), "--config", str(folder / "tiny.json"), "--data", str(folder),
                     "--out", str(folder / out), "--device", "cpu", *flags], "env": {**os.environ, "OMP_NUM_THREADS": "2"}}


def run(folder, out, *flags):
    subprocess.run(**command(folder, out, *flags), check=True, capture_output=True)
    return checkpoint.load(folder / out / "last.pt")


def read_log(folder):
    return [json.loads(x) for x in (folder / "log.jsonl").read_text().splitlines()]


def test_resuming_repeats_the_run_exactly(folder):
    whole = run(folder, "whole", "--pack", str(folder / "packed"))
    first = run(folder, "parts", "--steps", "3", "--no-eval")
    second = run(folder, "parts")
    assert (first["step"], second["step"], whole["step"]) == (3, 8, 8)
    assert not torch.equal(first["p"]["0.q"], second["p"]["0.q"])
    for name, x in whole["p"].items():
        assert torch.equal(x, second["p"][name]), name
    lines = read_log(folder / "whole")
    assert [x["kind"] for x in lines] == ["start", "train", "train", "train", "train", "eval", "done"]
    assert 0 < lines[-2]["bits_per_byte"] < 10
    packed, meta = checkpoint.unpack(folder / "packed")
    assert meta["step"] == 8
    for name, x in whole["p"].items():
        assert torch.allclose(packed[name], x, rtol=1e-3, atol=1e-6), name


def test_a_killed_run_goes_on_from_its_checkpoint(folder):
    config = copy.deepcopy(CONFIG)
    config.update(save_seconds=0, log_every=1)
    config["stages"][0]["tokens"] = 5120
    (folder / "tiny.json").write_text(json.dumps(config))
    process = subprocess.Popen(**command(folder, "killed", "--no-eval"), stdout=subprocess.DEVNULL)
    for _ in range(600):
        time.sleep(0.1)
        if (folder / "killed/last.pt").exists():
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    with open(folder / "killed/log.jsonl", "a") as f:
        f.write('{"kind": "train", "step": 999}\n{"kind": "tr')  # logged after the checkpoint; cut off
    again, whole = run(folder, "killed", "--no-eval"), run(folder, "whole", "--no-eval")
    assert all(torch.equal(x, again["p"][k]) for k, x in whole["p"].items())
    steps = [[x["step"] for x in read_log(folder / name) if x["kind"] == "train"] for name in ("killed", "whole")]
    assert steps[0] == steps[1] == list(range(1, 25))


def test_a_stage_ends_when_its_task_is_learned(folder):
    config = copy.deepcopy(CONFIG)
    config["stages"][0].update(tokens=25600, until={"task": "repeat", "right": 0.0, "every_steps": 3, "documents": 4})
    (folder / "tiny.json").write_text(json.dumps(config))
    whole = run(folder, "whole", "--no-eval")
    assert whole["ends"] == [3, 7] and whole["step"] == 7
    run(folder, "parts", "--no-eval", "--steps", "5")
    parts = run(folder, "parts", "--no-eval")
    assert all(torch.equal(x, parts["p"][k]) for k, x in whole["p"].items())
    config["seed"] = 4
    (folder / "tiny.json").write_text(json.dumps(config))
    refused = subprocess.run(**command(folder, "parts"), capture_output=True, text=True)
    assert refused.returncode == 1 and "another configuration" in refused.stderr


def test_start_values_without_an_induction_head():
    shape = model.Shape(**CONFIG["shape"])
    plain, planted = (model.start_values(shape, 1, x) for x in (False, True))
    assert {k for k in plain if not torch.equal(plain[k], planted[k])} == {"0.q", "0.k", "0.o", "1.q", "1.k", "1.v", "1.o"}
    for i in range(2):
        assert plain[f"{i}.q"].std() == pytest.approx(0.5 / 8, rel=0.05)  # no column is larger than the others
        assert plain[f"{i}.q"].abs().max() < 6 * 0.5 / 8


def test_packing_in_small_parts(tmp_path):
    p = model.start_values(model.Shape(**CONFIG["shape"]), 1)
    checkpoint.pack(tmp_path, p, {"step": 1}, part_bytes=10000)
    assert len(list(tmp_path.glob("weights.*.f16"))) > 10
    again, _ = checkpoint.unpack(tmp_path)
    assert all(torch.allclose(again[k], v, rtol=1e-3, atol=1e-6) for k, v in p.items())


def test_plan_covers_its_stages_and_comes_to_rest():
    plan = train.Plan(CONFIG)
    assert plan.ends == [4, 8]
    assert plan.length(7) == 256 and {plan.length(n) for n in range(4)} <= {64, 128}
    rates = [plan.rate(n) for n in range(plan.steps)]
    assert rates[0] == 0.5 and rates[2] == 1.0 and rates[-1] == 0.25 and rates == sorted(rates[:2]) + sorted(rates[2:], reverse=True)
    assert train.Plan(CONFIG, 2.0).steps == 16


def test_export_writes_the_weights(folder):
    gguf = pytest.importorskip("gguf", reason="skipped: PyPI gguf is not installed")
    import export
    shape = model.Shape(**CONFIG["shape"])
    p = model.start_values(shape, 1)
    export.write(folder / "x.gguf", p, shape, TOK, "tiny", "test", quantised=False)
    reader = gguf.GGUFReader(folder / "x.gguf")
    tensors = {t.name: t for t in reader.tensors}
    assert len(tensors) == 2 + 9 * shape.layers
    got = np.array(tensors["blk.1.ffn_up.weight"].data, np.float32)
    assert np.allclose(got, p["1.gu"][shape.ffn:].numpy(), rtol=1e-3, atol=1e-6)
    assert reader.get_field("tokenizer.ggml.pre").contents() == "gpt-2"


def test_export_of_norms_on_queries_and_keys(folder):
    gguf = pytest.importorskip("gguf", reason="skipped: PyPI gguf is not installed")
    import export
    shape = model.Shape(**{**CONFIG["shape"], "qk_norm": True})
    p = model.start_values(shape, 1, induction_head=False)
    p["0.qn"] += torch.rand(32)
    export.write(folder / "x.gguf", p, shape, TOK, "tiny", "test", quantised=False)
    reader = gguf.GGUFReader(folder / "x.gguf")
    assert reader.get_field("general.architecture").contents() == "qwen3"
    tensors = {t.name: np.array(t.data, np.float32) for t in reader.tensors}
    q, norm = tensors["blk.0.attn_q.weight"].reshape(4, 32, 64), tensors["blk.0.attn_q_norm.weight"]
    for j in range(16):  # qwen3's pair (j, j + 16) is our pair (2j, 2j + 1)
        assert np.allclose(q[:, [j, j + 16]], p["0.q"].view(4, 32, 64)[:, [2 * j, 2 * j + 1]], rtol=1e-3, atol=1e-6)
        assert np.allclose(norm[[j, j + 16]], p["0.qn"][[2 * j, 2 * j + 1]])
    assert np.allclose(tensors["blk.0.attn_v.weight"], p["0.v"], rtol=1e-3, atol=1e-6)


def test_graphs_need_a_gpu(folder):
    done = subprocess.run(**command(folder, "out", "--graphs"), capture_output=True, text=True)
    assert done.returncode == 2
    assert "--graphs" in done.stderr and "cuda" in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_graphs_change_no_loss(folder):
    losses = []
    for flags in ([], ["--graphs"]):
        call = command(folder, "out" + "".join(flags), "--no-eval", *flags)
        call["args"][call["args"].index("cpu")] = "cuda"
        subprocess.run(**call, check=True, capture_output=True)
        losses.append([x["loss"] for x in read_log(folder / ("out" + "".join(flags))) if x["kind"] == "train"])
    assert losses[0] == pytest.approx(losses[1], abs=0.01)
