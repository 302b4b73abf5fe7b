"""winnow calibrate: its profile is found beside the model, used, and rejected for another model."""

import os
import shutil
import subprocess
import unittest

from harness import CliTest, winnow

TEXT = "Once upon a time there was a little girl named Lily. She loved to play with the old man and his dog. " * 40
PROFILE = ["--kv-method", "winnow:allocation=profile,queries=window", "--kv-size", "24"]


class CalibrateTest(CliTest):
    def setUp(self):
        self.text = self.file("text.txt", TEXT)
        self.profile = self.folder / "tiny.gguf.profile"
        self.profile.unlink(missing_ok=True)
        self.run_flags = ["run", "-p", TEXT[:400], "-n", "4", "--temp", "0", "--no-perf", *PROFILE]

    def calibrate(self, *more):
        return winnow("calibrate", "-m", self.model, "-f", self.text, "--prompts", "2", "--length", "64", *more)

    def test_a_profile_is_made_and_found_beside_the_model(self):
        missing = winnow(*self.run_flags, "-m", self.model)
        self.assertEqual(missing.code, 1)
        self.assertIn(f"cannot open {self.profile}; create it with 'winnow calibrate'", missing.err)
        outcome = self.assert_done(self.calibrate())
        self.assertIn("2 prompts of 64 tokens", outcome.err)
        first = self.profile.read_text()
        self.assertEqual(first.splitlines()[0], "winnow error profile 1")
        self.assert_done(winnow(*self.run_flags, "-m", self.model))
        # The errors are those of a replay: evicting in the replay's order loses less than in
        # another.
        window = first.index("window")
        total = [sum(map(float, part.split("\n", 1)[1].split())) for part in (first[first.index("replay"):window], first[window:])]
        self.assertLess(total[0], 0.9 * total[1])
        self.assert_done(self.calibrate("-t", "1"))
        self.assertEqual(self.profile.read_text(), first)  # for any number of threads
        self.assertEqual(self.assert_done(self.calibrate("-o", "-")).text, first)

    def test_heads_whose_errors_are_large_get_more(self):
        self.assert_done(self.calibrate())
        lines = self.profile.read_text().splitlines()
        n_layers, n_heads = map(int, lines[2].split()[1:])
        lossy = " ".join(str(i) for i in range(24))
        for needy in range(n_layers):
            made = lines[:3]
            for order in ("replay", "window"):
                made.append(f"{order} 1")
                for layer in range(n_layers):
                    made += [lossy if layer == needy else " ".join(["0"] * 24)] * n_heads
            self.profile.write_text("\n".join(made) + "\n")
            for method in ("winnow:allocation=profile,queries=window", "winnow:allocation=profile"):
                flags = ["run", "-m", self.model, "-p", TEXT[:200], "-n", "1", "--json", "--kv-method", method, "--kv-size", "24"]
                kept = self.assert_done(winnow(*flags)).json["kv"]["kept"]
                others = [count for layer, count in enumerate(kept) if layer != needy]
                self.assertGreater(kept[needy], 2 * max(others), (method, kept))

    def test_another_model_is_refused_and_named(self):
        self.assert_done(self.calibrate())
        other = self.folder / "other.gguf"
        subprocess.run([os.environ["MAKE_TINY_MODEL"], other, "f32", "2"], check=True, capture_output=True)
        shutil.copy(self.profile, f"{other}.profile")
        outcome = winnow(*self.run_flags, "-m", other)
        self.assertEqual(outcome.code, 1)
        self.assertIn("belongs to another model", outcome.err)
        self.assertIn("other.gguf.profile", outcome.err)

    def test_a_short_text_has_only_so_many_prompts(self):
        short = self.file("short.txt", TEXT[:400])
        n = len(self.assert_done(winnow("tokenize", "-m", self.model, "-f", short, "--json")).json["tokens"])
        told = self.assert_done(winnow("calibrate", "-m", self.model, "-f", short, "--prompts", "4", "--length", n - 2)).err
        self.assertRegex(told, rf"[1-3] prompts? of {n - 2} tokens")

    def test_damaged_profiles_are_refused(self):
        self.assert_done(self.calibrate())
        text = self.profile.read_text()
        for damaged in ("", text[: len(text) // 2], text.replace("replay", "repaly"), "\0" * 1000, text.replace(" 0", " nan")):
            self.profile.write_text(damaged)
            outcome = winnow(*self.run_flags, "-m", self.model)
            self.assertEqual(outcome.code, 1, damaged[:80])
            self.assertIn("tiny.gguf.profile: error profile: line", outcome.err)

    def test_bad_input(self):
        self.assert_misused(self.calibrate("--prompts", "0"), "--prompts", "at least 1")
        self.assert_misused(self.calibrate("--length", "10"), "--length", "at least 64")
        self.assert_misused(winnow("calibrate"), "contains its profile")
        short = winnow("calibrate", "-m", self.model, "-f", self.file("short.txt", "Once."), "--length", "64")
        self.assertEqual(short.code, 1)
        self.assertIn("expected at least 64", short.err)
        self.assertFalse(self.profile.exists())
        long = self.calibrate("--length", "100000")
        self.assertEqual(long.code, 1)
        self.assertIn("was trained for", long.err)
        self.assert_misused(self.calibrate("-o", self.model), "-o")
        no_room = winnow("calibrate", "--length", "4096", "--prompts", "1", "-o", self.folder / "none.profile")
        self.assertEqual(no_room.code, 1)
        self.assertIn("has no room for", no_room.err)
        self.assertFalse((self.folder / "none.profile").exists())

    def test_the_model_inside_has_one(self):
        self.assert_done(winnow(*self.run_flags))




if __name__ == "__main__":
    unittest.main()
