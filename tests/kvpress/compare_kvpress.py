"""Compares the entries that methods keep with those that kvpress keeps, on the bundled model, in kvpress with transformers.

The two programs round scores differently, so entries with nearly equal scores may swap. Two kept sets agree if every entry
that only one of them has gets a score from kvpress that is close to the last kept one. Exit code 77: a requirement is not
installed (kvpress, which needs torch and transformers; gguf, which reads the model file).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

if os.environ.get("KVPRESS_PYTHON") and os.environ.get("KVPRESS_CHILD") is None:
    raise SystemExit(subprocess.run([os.environ["KVPRESS_PYTHON"], __file__, *sys.argv[1:]], check=False,
                                    env={**os.environ, "KVPRESS_CHILD": "1"}).returncode)
try:
    import gguf
    import kvpress
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error.name} is not installed (pip install kvpress gguf)")
    raise SystemExit(77) from error

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/winnow-s-F16.gguf"
WINNOW = os.environ["WINNOW"]


def read_model():
    """A LlamaForCausalLM with the file's weights, in float32."""
    reader = gguf.GGUFReader(MODEL)
    field = lambda name: reader.fields[name].contents()
    heads, kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
    hidden = field("llama.embedding_length")
    tensors = {t.name: torch.from_numpy(np.array(t.data, dtype=np.float32)).reshape(tuple(int(n) for n in reversed(t.shape)))
               for t in reader.tensors}
    config = transformers.LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0], hidden_size=hidden, num_hidden_layers=field("llama.block_count"),
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=hidden // heads,
        intermediate_size=field("llama.feed_forward_length"), rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        max_position_embeddings=field("llama.context_length"), rope_theta=field("llama.rope.freq_base"),
        rope_scaling=None, tie_word_embeddings="output.weight" not in tensors, attention_bias=False)
    config.rope_parameters = {"rope_type": "default", "rope_theta": field("llama.rope.freq_base")}
    config._attn_implementation = "sdpa"

    def halves(weight, n):
        """Reorders rows: GGUF rotates neighbouring dimensions, transformers the halves of a head."""
        return weight.reshape(n, weight.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)

    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    state = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"],
             "lm_head.weight": tensors.get("output.weight", tensors["token_embd.weight"])}
    for name, tensor in tensors.items():
        if not name.startswith("blk."):
            continue
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            tensor = halves(tensor, heads if part == "attn_q" else kv_heads)
        state[f"model.layers.{layer}.{names[part]}.weight"] = tensor
    model = transformers.LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and not [name for name in missing if "rotary" not in name], (missing, unexpected)
    return model


def winnow(*arguments):
    done = subprocess.run([WINNOW, *map(str, arguments)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Tokens:
    """The part of a tokenizer's interface that kvpress uses, implemented with winnow."""
    chat_template = None

    @staticmethod
    def encode(text, return_tensors=None, add_special_tokens=False):
        ids = tokenize(text, "--no-bos") if text else []
        return torch.tensor([ids], dtype=torch.long) if return_tensors else ids


def tokenize(text, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        found = json.loads(winnow("tokenize", "-m", MODEL, "-f", file.name, "--json", *flags))
    tokens = found["tokens"] if isinstance(found, dict) else found
    return [token["id"] if isinstance(token, dict) else token for token in tokens]


def kept_by_winnow(text, method, size, n):
    """The kept text positions, {(layer, head): set}."""
    with tempfile.TemporaryDirectory() as folder:
        prompt, trace = pathlib.Path(folder) / "prompt.txt", pathlib.Path(folder) / "trace.jsonl"
        prompt.write_text(text)
        winnow("run", "-m", MODEL, "-f", prompt, "-n", 1, "--temp", 0, "-ctk", "f32", "-ctv", "f32", "--kv-method", method,
               "--kv-size", size, "--trace", trace, "-q")
        kept = {}
        for line in trace.read_text().splitlines():
            plan = json.loads(line)
            if plan.get("phase", "prefill") != "prefill":
                continue
            for head, what in enumerate(plan["heads"]):
                kept.setdefault((plan["layer"], head), set(range(n))).difference_update(what["evicted"])
    return kept


def scores_of_press(model, ids, press, size):
    """The scores of a press, {layer: [head, entry]}."""
    found, of_class = {}, press.score
    press.compression_ratio = 1 - (size + 0.5) / len(ids)

    def score(module, *arguments, **more):
        scores = of_class(module, *arguments, **more)
        found[module.layer_idx] = scores[0].detach().double().numpy()
        return scores

    press.score = score
    with torch.no_grad(), press(model):
        model.model(input_ids=torch.tensor([ids]), past_key_values=transformers.DynamicCache())
    return found


def scores_of_kvzip(model, ids, size):
    """The scores of KVzip, which reads the prompt twice. The caller skips its sinks, whose score is 1."""
    press, found = kvpress.KVzipPress(), {}
    press.compression_ratio = 1 - (size + 0.5) / len(ids)
    transformers.AutoTokenizer.from_pretrained = lambda *_, **__: Tokens()
    sys.modules["kvpress.presses.kvzip_press"].AutoTokenizer = transformers.AutoTokenizer

    def take(_):
        for layer, scores in enumerate(press.score_val):
            found[layer] = scores[0].detach().double().numpy().copy()

    press.compress_post = take
    with torch.no_grad(), press(model):
        model(input_ids=torch.tensor([ids]), past_key_values=transformers.DynamicCache())
    return found


def differences(kept, scores, n_keep, tolerance):
    """Of the entries that only one of the two keeps: how many have scores too far from kvpress's last kept one; their number."""
    n_far = n_different = 0
    for (layer, head), ours in kept.items():
        row = scores[layer][head]
        order = np.argsort(-row, kind="stable")
        theirs = set(order[:n_keep].tolist())
        last = row[order[n_keep - 1]]
        scale = np.std(row[np.isfinite(row) & (np.abs(row) < 1e30)])
        different = ours.symmetric_difference(theirs)
        n_different += len(different)
        n_far += sum(abs(row[entry] - last) > tolerance * max(scale, 1e-12) for entry in different)
    return n_far, n_different


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    text = (ROOT / "examples/documents/harbour.txt").read_text()
    model = read_model()
    ids = tokenize(text)
    with torch.no_grad():
        hf = model(torch.tensor([ids[:300]])).logits[0, -1].argmax().item()
    print(f"{len(ids)} tokens; the model in transformers goes on with token {hf} after 300")
    size, failed = 400, 0
    snapkv = lambda: kvpress.SnapKVPress(window_size=64, kernel_size=5)
    snap = "window(window=64,pool=average,kernel=5)"
    cases = [
        ("keydiff", "keydiff:decode=false", kvpress.KeyDiffPress(), 0.02),
        ("knorm", "knorm:decode=false", kvpress.KnormPress(), 0.02),
        ("snapkv", "snapkv:window=64,pool=average,kernel=5", snapkv(), 0.02),
        ("lagkv", "lagkv", kvpress.LagKVPress(), 0.05),
        ("criticalkv", f"criticalkv:score={snap}", kvpress.CriticalKVPress(snapkv()), 0.02),
        ("expected-attention", "expected-attention:alpha=1", kvpress.ExpectedAttentionPress(epsilon=0.01), 0.02),
        ("compactor", "compactor", kvpress.CompactorPress(), 0.1),
    ]
    known = {line.split()[0] for line in winnow("methods").splitlines() if line.strip()}
    for name, method, press, tolerance in cases:
        if name not in known:
            print(f"{name}: not in this build")
            continue
        # Use whole chunks for Compactor: kvpress pads the last one with zeros, which take part in its scores.
        n = len(ids) - (len(ids) - 12) % 256 if name == "compactor" else len(ids)
        cut = text if n == len(ids) else winnow_text(ids[:n])
        kept = kept_by_winnow(cut, method, size, n)
        far, different = differences(kept, scores_of_press(model, ids[:n], press, size), size, tolerance)
        total = size * len(kept)
        print(f"{name}: {len(kept)} heads keep {total} entries, {different // 2} others than kvpress, {far} of them not by a near tie")
        failed += far > 0.002 * total
    if "kvzip" in known:
        scores = scores_of_kvzip(model, ids, size)
        kept = kept_by_winnow(text, "kvzip", size, len(ids))
        rows = np.concatenate([scores[layer][head][4:] for layer in scores for head in range(scores[layer].shape[0])])
        n_heads = len(kept)
        last = np.sort(rows)[-(size - 4) * n_heads]
        far = sum(abs(scores[layer][head][entry] - last) > 0.02 * last
                  for (layer, head), ours in kept.items() for entry in range(4, len(ids))
                  if (entry in ours) != (scores[layer][head][entry] >= last))
        print(f"kvzip: {sum(map(len, kept.values()))} entries, {far} others than kvpress and not by a near tie")
        failed += far > 0.002 * size * n_heads
    return 1 if failed else 0


def winnow_text(ids):
    """The text of some tokens. Asserts that it tokenizes to the same tokens."""
    reader = gguf.GGUFReader(MODEL)
    pieces = reader.fields["tokenizer.ggml.tokens"].contents()
    text = "".join(pieces[i] for i in ids if not pieces[i].startswith("<|"))
    if reader.fields["tokenizer.ggml.model"].contents() == "gpt2":
        decode = {chr(c): b for b, c in byte_characters().items()}
        text = bytes(decode[c] for c in text).decode("utf-8", errors="ignore")
    else:
        text = text.replace("\u2581", " ")
    assert tokenize(text) == list(ids), "the text of a cut does not give its tokens back"
    return text


def byte_characters():
    """The character that byte-level BPE writes for each byte, {byte: code point}."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    return {**{b: b for b in visible}, **{b: 256 + i for i, b in enumerate(hidden)}}


if __name__ == "__main__":
    raise SystemExit(main())
