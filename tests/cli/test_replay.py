"""winnow replay against a reference implementation: plain loops in double precision."""

import json
import math
import struct
import unittest

from harness import winnow
from recordings import DIM, GROUP, HKV, HQ, LAYERS, N, PROMPT, ReplayTest, Text, attend, mix, rotate, write_safetensors


class Replay(ReplayTest):
    def test_streaming_with_reassigned_positions(self):
        for pairing in ("norm", "neox"):
            text = Text(1, pairing)
            path = self.record("streaming.safetensors", text)
            for target in ("", "reference"):
                found, result = self.replay(path, "streaming:sinks=2", "--size", "10", "--cpu-target", target)
                self.assertEqual(found["kept"], [10] * LAYERS)
                for layer in range(LAYERS):
                    outputs = self.rows(result, f"layers.{layer}.out")
                    keys = self.rows(result, f"layers.{layer}.k")
                    values = self.rows(result, f"layers.{layer}.v")
                    for g in range(HKV):
                        entries = [0, 1] + list(range(PROMPT - 8, PROMPT))
                        for token in range(PROMPT, N):
                            seen = entries + [token]
                            stored = [rotate(text.k_pre[layer][g][t], rank, pairing) for rank, t in enumerate(seen)]
                            for h in range(g * GROUP, (g + 1) * GROUP):
                                query = rotate(text.q_pre[layer][h][token], len(seen) - 1, pairing)
                                expected = mix(attend(query, stored), [text.v[layer][g][t] for t in seen])
                                self.assert_close(outputs[h][token - PROMPT], expected)
                            entries = seen[:2] + seen[3:]
                        self.assertEqual(self.kept(result, layer, g), entries)
                        for rank, token in enumerate(entries):  # stored before RoPE
                            self.assert_close(keys[g][rank], text.k_pre[layer][g][token])
                            self.assert_close(values[g][rank], text.v[layer][g][token])

    def test_snapkv(self):
        text = Text(2, "neox")
        path = self.record("snapkv.safetensors", text)
        window, kernel, size = 4, 3, 9
        _, result = self.replay(path, f"snapkv:window={window},kernel={kernel}", "--size", size)
        for layer in range(LAYERS):
            outputs = self.rows(result, f"layers.{layer}.out")
            for g in range(HKV):
                votes = [0.0] * (PROMPT - window)
                for i in range(PROMPT - window, PROMPT):
                    for h in range(g * GROUP, (g + 1) * GROUP):
                        weights = attend(text.q[layer][h][i], text.k[layer][g][:i + 1])
                        for j in range(len(votes)):
                            votes[j] += weights[j] / GROUP
                pooled = [max(votes[max(0, j - 1):j + 2]) for j in range(len(votes))]
                best = sorted(range(len(pooled)), key=lambda j: (pooled[j], j))[-(size - window):]
                entries = sorted(best) + list(range(PROMPT - window, N))
                self.assertEqual(self.kept(result, layer, g), entries)
                for token in range(PROMPT, N):
                    seen = [t for t in entries if t <= token]
                    for h in range(g * GROUP, (g + 1) * GROUP):
                        weights = attend(text.q[layer][h][token], [text.k[layer][g][t] for t in seen])
                        self.assert_close(outputs[h][token - PROMPT], mix(weights, [text.v[layer][g][t] for t in seen]))

    def test_every_method(self):
        path = self.record("all.safetensors", Text(3, "norm"))
        for method in winnow("methods", "--json").json:
            with self.subTest(method=method["name"]):
                size = max(12, method["min_budget"])
                budget = ["--size", size] if method["needs_budget"] else []
                found, result = self.replay(path, method["name"], *budget)
                self.assertEqual(found["seen"], N)
                for layer in range(LAYERS):
                    for head in range(HKV):
                        kept = self.kept(result, layer, head)
                        self.assertEqual(kept, sorted(set(kept)))
                        self.assertLess(kept[-1], N)
                    self.assertEqual(result[f"layers.{layer}.out"][1], [HQ, N - PROMPT, DIM])
                    self.assertTrue(all(math.isfinite(x) for x in result[f"layers.{layer}.out"][2]))

    def test_ratio_decode_method_and_trace(self):
        path = self.record("ratio.safetensors", Text(4, "norm"))
        trace = self.folder / "trace.jsonl"
        found, _ = self.replay(path, "snapkv:window=4", "--ratio", "0.5", "--decode", "h2o", "--trace", trace)
        self.assertEqual((found["budget"], found["kept"]), (PROMPT // 2, [PROMPT // 2] * LAYERS))
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        self.assertEqual(len(lines), LAYERS * (1 + N - PROMPT))

    def test_a_limit_in_bytes(self):
        path = self.record("memory.safetensors", Text(7, "norm"))
        entry = HKV * 2 * 4 * DIM  # bytes of a token in one layer: keys and values of all heads, floats
        # While the last layer holds the whole prompt, the other one has been reduced to its size.
        found, _ = self.replay(path, "streaming:sinks=2", "--memory", entry * (PROMPT + 10))
        self.assertEqual((found["budget"], found["kept"]), (10, [10] * LAYERS))
        out = self.folder / "none.safetensors"
        self.assert_failed(winnow("replay", "--method", "streaming", "--in", path, "--out", out, "--memory", entry * PROMPT),
                           f"{entry * PROMPT} are allowed")
        self.assertFalse(out.exists())

    def test_a_prompt_alone(self):
        path = self.record("prompt.safetensors", Text(5, "norm"), n_prompt=str(N))
        _, result = self.replay(path, "h2o", "--size", "8")
        self.assertEqual(result["layers.0.out"][1], [HQ, 0, DIM])

    def fails(self, path, *parts, method="streaming"):
        out = self.folder / "none.safetensors"
        self.assert_failed(winnow("replay", "--method", method, "--in", path, "--out", out, "--size", "8"), *parts)
        self.assertFalse(out.exists())

    def test_files_that_are_no_recordings(self):
        text = Text(6, "norm")
        tensors = text.tensors()
        metadata = text.metadata()

        def case(name, *parts, drop=(), change=None, **texts):
            path = self.folder / name
            kept = {k: v for k, v in {**tensors, **(change or {})}.items() if k not in drop}
            write_safetensors(path, kept, {k: v for k, v in {**metadata, **texts}.items() if v is not None})
            self.fails(path, *parts)

        case("a", "layers.0.q is missing", drop=["layers.0.q"])
        case("b", "layers.1.v is missing", drop=["layers.1.v"])
        case("c", "layers.1.k_pre is missing", drop=["layers.1.k_pre"])
        case("e", "layers.1.k", "shape [2, 30, 7]", "expected [2, 30, 8]",
             change={"layers.1.k": ([2, 30, 7], [0.0] * (2 * 30 * 7))})
        case("f", "4 heads, expected a multiple of the 3", change={"layers.0.k": ([3, 30, 8], [0.0] * (3 * 30 * 8))})
        case("g", "layers.0.q", "shape [960]", change={"layers.0.q": ([960], [0.0] * 960)})
        case("h", "layers.7.q: there is no layers.2.q before it", change={"layers.7.q": tensors["layers.1.q"]})
        case("i", "n_prompt is missing", n_prompt=None)
        case("j", "n_prompt", "'0'", "1 to 30", n_prompt="0")
        case("k", "n_prompt", "'31'", n_prompt="31")
        case("l", "rope_theta", "above 0", rope_theta="-1")
        case("m", "rope_theta", rope_theta="nan")
        case("n", "rope_type", "'other'", "norm or neox", rope_type="other")
        case("o", "rope_type is missing", rope_type=None)
        path = self.folder / "a"
        whole = self.record("whole", text).read_bytes()
        for size in (0, 7, 8, 100, len(whole) - 4):
            path.write_bytes(whole[:size])
            self.fails(path, str(path))
        path.write_bytes(struct.pack("<Q", 1 << 62) + whole[8:])
        self.fails(path, "not a safetensors file")
        self.fails("/nowhere/x", "/nowhere/x")
        # Tensors that a method does not need may be missing.
        bare = self.folder / "bare"
        write_safetensors(bare, {k: v for k, v in tensors.items() if not k.endswith("_pre")}, {"n_prompt": "20"})
        self.replay(bare, "snapkv:window=4", "--size", "8")

    def test_misuse(self):
        def misused(flags, *parts):
            self.assert_misused(winnow("replay", *flags.split()), *parts)
        misused("--in x --out y", "--method")
        misused("--method h2o --size 4 --out y", "--in")
        misused("--method h2o --in x --out y", "h2o needs a budget")
        misused("--method nothing --in x --out y", "no method 'nothing'")
        misused("--method h2o --size 4 --in x --out y -t 0", "-t")


if __name__ == "__main__":
    unittest.main()
