"""winnow replay: every method runs, and files, budgets and flags are read as documented. The
numbers are compared in test_replay_methods.py and the files beside it."""

import json
import math
import struct
import unittest

from harness import winnow
from recordings import DIM, HKV, HQ, LAYERS, N, PROMPT, ReplayTest, Text, write_safetensors


class Replay(ReplayTest):
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
