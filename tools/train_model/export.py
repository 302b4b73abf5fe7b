#!/usr/bin/env python3
"""Writes NAME-F16.gguf and NAME-Q8_0.gguf from a checkpoint, and reference.npz for check_export.py.

The checkpoint is train.py's last.pt or a folder of packed weights. reference.npz holds the float32
logits of the training model for prompts of the tasks.
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
import torch

import checkpoint
import documents
import measure
import model
import tasks
import tokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHAT_TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
TENSORS = {"n1": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "n2": "ffn_norm",
           "d": "ffn_down", "qn": "attn_q_norm", "kn": "attn_k_norm"}


def halves(x, heads):
    """Reorders the rows of every head from RoPE pairs (0, 1), (2, 3), .. to halves, as qwen3
    rotates them. x [heads * head_dim, ..]."""
    return x.view(heads, -1, 2, *x.shape[1:]).transpose(1, 2).reshape(x.shape)


def gguf_tensors(p, shape):
    """GGUF name -> float32 array. RoPE pairs are interleaved in training, which llama expects;
    qwen3 expects halves."""
    if shape.qk_norm:
        heads = {"q": shape.heads, "k": shape.kv_heads, "qn": 1, "kn": 1}
        p = {k: halves(v, heads[k.split(".")[-1]]) if k.split(".")[-1] in heads else v for k, v in p.items()}
    out = {"token_embd.weight": p["emb"], "output_norm.weight": p["norm"]}
    for i in range(shape.layers):
        for mine, theirs in TENSORS.items():
            if f"{i}.{mine}" not in p:
                continue
            out[f"blk.{i}.{theirs}.weight"] = p[f"{i}.{mine}"]
        gate, up = p[f"{i}.gu"].chunk(2)
        out[f"blk.{i}.ffn_gate.weight"], out[f"blk.{i}.ffn_up.weight"] = gate, up
    return {k: v.float().numpy() for k, v in out.items()}


def write(path, p, shape, tok, name, description, quantised):
    w = gguf.GGUFWriter(str(path), shape.architecture)
    w.add_name(name)
    w.add_description(description)
    w.add_license("apache-2.0")
    w.add_languages(["en"])
    w.add_size_label(f"{sum(v.numel() for v in p.values()) / 1e6:.1f}M")
    w.add_block_count(shape.layers)
    w.add_context_length(shape.context)
    w.add_embedding_length(shape.dim)
    w.add_feed_forward_length(shape.ffn)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_key_length(shape.head_dim)
    w.add_value_length(shape.head_dim)
    w.add_rope_dimension_count(shape.head_dim)
    w.add_rope_freq_base(shape.theta)
    w.add_layer_norm_rms_eps(shape.eps)
    w.add_vocab_size(shape.vocab)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if quantised else gguf.LlamaFileType.MOSTLY_F16)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tok.tokens)
    w.add_token_merges([" ".join(m) for m in tok.merges])
    special = len(tokenizer.SPECIAL)
    w.add_token_types([gguf.TokenType.CONTROL] * special + [gguf.TokenType.NORMAL] * (shape.vocab - special))
    w.add_bos_token_id(tokenizer.END)
    w.add_eos_token_id(tokenizer.END)
    w.add_eot_token_id(tokenizer.CHAT_END)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_chat_template(CHAT_TEMPLATE)
    for key, x in gguf_tensors(p, shape).items():
        if x.ndim == 1:
            w.add_tensor(key, x.astype(np.float32))
        elif quantised:
            q8 = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(key, gguf.quants.quantize(x, q8), raw_dtype=q8)
        else:
            w.add_tensor(key, x.astype(np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def reference(p, shape, tok, corpus, prompts):
    """Prompts of several tasks in both forms, the logits after each, and greedy answers of up to 16
    ids.

    The answers are those of the weights rounded as in the F16 file: rounding may decide between
    two equally likely words.
    """
    rounded = {k: v.half().float() if v.dim() == 2 else v for k, v in p.items()}
    ids_of, logits_of, answers = [], [], []
    for n in range(prompts):
        sampler = tasks.Sampler(tok, corpus, held=n % 2 == 1)
        rng = tasks.generator("reference", n)
        length = (256, 512, 1024, 320)[n % 4]
        made = [sampler.makers[t](rng, length) for t in ("needle", "key_value", "dialogue", "two_hop", "quote")]
        piece = next(m for m in made[n % 5:] + made if m is not None and m.answers)
        ids = piece.ids[:piece.answers[0].start]
        with torch.no_grad():
            ids_of.append(np.array(ids, np.int32))
            logits_of.append(model.logits(p, torch.tensor([ids]), shape)[0, -1].numpy())
            answer = list(ids)
            while len(answer) < len(ids) + 16:
                answer.append(int(model.logits(rounded, torch.tensor([answer]), shape)[0, -1].argmax()))
                if answer[-1] in (tokenizer.END, tokenizer.CHAT_END):
                    break
            answers.append(np.array(answer[len(ids):], np.int32))
    return ids_of, logits_of, answers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--config", default=HERE / "configs/s.json", type=pathlib.Path)
    parser.add_argument("--data", default=ROOT / "build/train/data", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=20, help="of reference.npz, some minutes; 0: no such file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    config = json.loads(args.config.read_text())
    shape = model.Shape(**config["shape"])
    p = checkpoint.unpack(args.checkpoint)[0] if args.checkpoint.is_dir() else checkpoint.load(args.checkpoint)["p"]
    tok = tokenizer.Tokenizer.load(args.data / "tokenizer.json")
    name = f"winnow-{config['name']}"
    description = ("Small language model trained from scratch with winnow's tools/train_model: public-domain books and "
                   "generated tasks that need a distant cache. No knowledge, no instruction following beyond its tasks.")
    args.out.mkdir(parents=True, exist_ok=True)
    for label, quantised in (("F16", False), ("Q8_0", True)):
        path = args.out / f"{name}-{label}.gguf"
        write(path, p, shape, tok, name, description, quantised)
        print(path, path.stat().st_size)
    if not args.prompts:
        return
    corpus = documents.Corpus(np.load(args.data / "held.npy"), tok)
    ids, logits, answers = reference(p, shape, tok, corpus, args.prompts)
    held = (args.data / "held.txt").read_text()[4000:24000] + "\n\nQuestion: What's 48213?\nAnswer: caf\u00e9 \u2014 \u201cno\u201d"
    np.savez_compressed(args.out / "reference.npz", logits=np.stack(logits), text=np.array(held),
                        text_ids=np.array([tokenizer.END, *tok.encode(held)], np.int32),
                        texts=np.array([measure.decode_text(tok, x.tolist()).decode() for x in ids]),
                        prompts=np.concatenate(ids), prompt_sizes=[len(x) for x in ids],
                        answers=np.concatenate(answers), answer_sizes=[len(x) for x in answers])


if __name__ == "__main__":
    main()
