"""Runs that end badly: invalid numbers, signals, memory that is refused, truncated files."""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from harness import SANITIZED, WINNOW, CliTest, winnow

TEXT = "Once upon a time there was a little girl named Lily. She loved to play with the old man. " * 12


def cpu_ticks(process):
    return sum(map(int, pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))


class EndsTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(TEXT)

    @classmethod
    def make_model(cls, name, value_gain):
        path = cls.folder / name
        subprocess.run([os.environ["MAKE_TINY_MODEL"], path, "f32", value_gain], check=True, capture_output=True)
        return path


class Numbers(EndsTest):
    """Values of 1e6 overflow an f16 cache; a damaged model gives NaN with any cache."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.loud = cls.make_model("loud.gguf", "1e6")
        cls.damaged = cls.make_model("damaged.gguf", "nan")

    def test_overflow_is_counted_and_warned_of_once(self):
        flags = ["perplexity", "-m", self.loud, "-f", self.text, "-c", "64", "--json"]
        outcome = self.assert_done(winnow(*flags))
        self.assertEqual(outcome.err.count("too large for the cache"), 1, outcome.err)
        self.assertIn("-ctk bf16 -ctv bf16", outcome.err)
        self.assertEqual(outcome.json["perplexity"], "nan")
        for types in (["-ctk", "bf16", "-ctv", "bf16"], ["-ctv", "bf16"], ["-ctv", "f32"]):
            outcome = self.assert_done(winnow(*flags, *types))
            self.assertNotIn("too large", outcome.err)
            self.assertGreater(outcome.json["perplexity"], 1)
        self.assertIn("too large", winnow(*flags, "-ctv", "q4_0").err)
        self.assertNotIn("too large", winnow(*[self.model if flag == self.loud else flag for flag in flags]).err)

    def test_no_token_is_chosen_by_nan(self):
        short = ["-p", "Once upon a time", "-n", "4"]
        for model, way_out in ((self.loud, "-ctk bf16 -ctv bf16"), (self.damaged, "--check-tensors")):
            for command in (["run", *short], ["run", *short, "--json"], ["run", *short, "--temp", "0"],
                            ["chat", "-st", *short],
                            ["compare", "-f", self.text, "-q", "Who?", "--kv-method", "streaming", "--kv-size", "16"]):
                outcome = winnow(command[0], "-m", model, *command[1:])
                self.assert_failed(outcome, "NaN", way_out)
        self.assert_done(winnow("run", "-m", self.loud, *short, "-ctv", "bf16"))

    def test_scores_keep_their_name_through_files_and_resumes(self):
        data = self.file("data.txt", TEXT)
        results = self.folder / "results.jsonl"
        flags = ["eval", "perplexity", "-m", self.loud, "--data", data, "--lengths", "64", "--chunks", "1", "--kv-method",
                 "streaming", "--kv-size", "16", "--results", results]
        first = self.assert_done(winnow(*flags, "--json", "-")).json
        second = self.assert_done(winnow(*flags, "--json", "-")).json
        self.assertEqual(first["rows"], second["rows"])
        for row in second["rows"]:
            self.assertEqual((row["nll"], row["perplexity"]), ("nan", "nan"))
        self.assertEqual(json.loads(results.read_text().splitlines()[0])["scores"]["nll"], "nan")
        table = self.assert_done(winnow(*flags)).text
        self.assertIn("| nan ", table.replace("  ", ""))
        self.assertNotIn("1.0000", table)
        page = self.folder / "page.html"
        self.assert_done(winnow(*flags, "--report", page))
        self.assertIn(">nan<", page.read_text())

    def test_a_score_that_is_no_number_is_an_error_with_its_line(self):
        data = self.file("data2.txt", TEXT)
        results = self.folder / "damaged.jsonl"
        flags = ["eval", "perplexity", "-m", self.model, "--data", data, "--lengths", "64", "--chunks", "2", "--results", results]
        self.assert_done(winnow(*flags))
        lines = results.read_text().splitlines()
        record = json.loads(lines[-1])
        for wrong in (None, "1.5", True, [1]):
            record["scores"]["nll"] = wrong
            results.write_text("\n".join([*lines[:-1], json.dumps(record)]) + "\n")
            self.assert_failed(winnow(*flags), f"damaged.jsonl:{len(lines)}", "nll", "expected a number")


class DamagedBase(EndsTest):
    def test_every_number_of_the_file_is_checked(self):
        base = self.folder / "base.kld"
        self.assert_done(winnow("perplexity", "-m", self.model, "-f", self.text, "-c", "64", "--chunks", "2", "--kl-base", base))
        data = base.read_bytes()

        def compare(place, number, n=4):
            changed = data[:place] + number.to_bytes(n, "little", signed=True) + data[place + n:]
            return winnow("perplexity", "-m", self.model, "--kl", self.file("changed.kld", changed))
        for place in (20, 24, 20 + 4 * 64, 20 + 4 * 127):  # tokens, including the first of each window
            for token in (2**31 - 1, 100000, -1, -2**31):
                self.assert_failed(compare(place, token), "changed.kld", f"is {token}", "damaged")
        rows = 20 + 4 * 128
        self.assert_failed(compare(rows, 0x7FC00000), "row 1")  # NaN
        self.assert_failed(compare(rows + 4, 0x7F800000), "row 1")  # infinity
        for place in (8, 12, 16):  # window, vocabulary, windows
            for number in (0, -1, 1, 2**31 - 1):
                self.assert_failed(compare(place, number), "changed.kld")
        self.assert_failed(winnow("perplexity", "-m", self.model, "--kl", self.file("longer.kld", data + b"x")), "length")


class Signals(EndsTest):
    """SIGTERM ends a run like Ctrl-C: finished results are written."""

    def interrupt(self, *command, number=signal.SIGTERM, ready=b"", stdin=b"", patience=60, settle=0.3):
        """Sends the signal once `ready` was printed; returns exit code, stdout and stderr."""
        process = subprocess.Popen([WINNOW, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, bufsize=0)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        process.stdin.write(stdin)
        printed = b""
        deadline = time.monotonic() + patience
        os.set_blocking(process.stdout.fileno(), False)
        while ready not in printed and process.poll() is None and time.monotonic() < deadline:
            printed += process.stdout.read(1 << 16) or b""
            time.sleep(0.02)
        self.assertIn(ready, printed)
        time.sleep(settle)
        process.send_signal(number)
        os.set_blocking(process.stdout.fileno(), True)
        rest, _ = process.communicate(timeout=patience)
        return process.returncode, (printed + rest).decode("utf-8", "replace")

    def long_runs(self):
        endless = ["--kv-method", "streaming", "--kv-size", "32", "-m", self.model, "-t", "1"]
        long_text = self.file("long.txt", TEXT * 600)
        trace = self.folder / "trace.jsonl"
        return {
            "run": ["run", *endless, "-p", "the", "-n", "100000000", "--ignore-eos", "--trace", trace],
            "chat": ["chat", *endless, "-p", "the", "-n", "100000000", "--ignore-eos", "--trace", trace],
            "perplexity": ["perplexity", *endless, "-f", long_text, "-c", "64", "--trace", trace],
            "stream": ["perplexity", *endless, "--stream", "-f", long_text, "--every", "100"],
            "bench": ["bench", *endless, "-p", "64", "-n", "8,3000000", "-r", "1", "-o", "jsonl"],
            "eval": ["eval", "perplexity", "-m", self.model, "--data", long_text, "--lengths", "64", "--results",
                     self.folder / f"results-{time.monotonic()}.jsonl", "--json", self.folder / "eval.json"],
        }

    READY = {"run": b"the", "chat": b"template", "perplexity": b"[2]", "stream": b"  200  ", "bench": b'"n_gen":8',
             "eval": b"eval   "}

    def test_all_long_commands(self):
        for name, command in self.long_runs().items():
            for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
                if name == "chat" and number == signal.SIGINT:
                    continue  # Ctrl-C ends an answer, not the chat
                with self.subTest(command=name, signal=number):
                    for left in self.folder.glob("*.json*"):
                        left.unlink()
                    found, printed = self.interrupt(*command, number=number, ready=self.READY[name])
                    self.assertEqual(found, code, printed[-400:])
                    if name == "perplexity":
                        self.assert_names(printed, ["Estimate so far: PPL = ", "interrupted after"])
                    if name == "eval":
                        self.assertFalse(json.loads((self.folder / "eval.json").read_text())["finished"])
                    if "--trace" in command:
                        lines = (self.folder / "trace.jsonl").read_text().splitlines()
                        self.assertGreater(len([json.loads(line) for line in lines]), 2)
                    self.assertEqual(list(self.folder.glob(".*.tmp")), [])

    def test_an_interrupted_answer_fails_a_pipe(self):
        """In a chat whose input ends afterwards."""
        # The bundled model, because it does not fill the unread pipe.
        command = ["chat", "-t", "1", "-n", "100000000", "--ignore-eos", "--kv-method", "streaming", "--kv-size", "32"]
        code, printed = self.interrupt(*command, number=signal.SIGINT, stdin=b"the house\n", ready=b"template", settle=1)
        self.assertEqual(code, 130, printed[-400:])

    def test_an_interrupted_write_loses_nothing(self):
        """An answer fills the pipe before it is read."""
        command = [WINNOW, *map(str, self.long_runs()["run"]), "--temp", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            ticks = -1
            while ticks != (ticks := cpu_ticks(process)) or ticks < 5:
                time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
            text, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, err)
        self.assertGreater(len(text), 60000)
        command[command.index("-n") + 1] = "40000"
        whole = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
        self.assertTrue(whole.startswith(text.removesuffix(b"\n")))

    def test_a_message_whose_prompt_was_interrupted_is_left_out(self):
        path = self.folder / "interrupted.json"
        process = subprocess.Popen([WINNOW, "chat", "-t", "1", "-ub", "1"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.addCleanup(process.kill)
        while b"template" not in process.stderr.readline():
            pass  # the bundled model, whose context is long enough
        long = self.file("long.txt", TEXT * 10)
        process.stdin.write(f"/read {long}\n".encode())
        process.stderr.readline()
        waited = cpu_ticks(process)
        process.stdin.write(b"the house\n")
        while cpu_ticks(process) < waited + 5:  # it is reading the prompt
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(f"/save {path}\n".encode(), timeout=60)
        roles = [m["role"] for m in json.loads(path.read_text())["messages"]]
        if roles:  # the answer came before the signal
            self.assertEqual(roles, ["user", "assistant"])
            return
        self.assertEqual(out, b"")
        self.assertIn(b"interrupted while the prompt was read", err)
        self.assertEqual(process.returncode, 130)

    def test_nobody_reads_any_more(self):
        """Sessions and transcripts are saved although nobody reads the output."""
        session = self.folder / "unread.session"
        command = self.long_runs()["run"] + ["--session", session, "--session-all"]
        for name, stream in (("stdout", "stdout"), ("stderr", "stderr")):
            with self.subTest(closed=name):
                session.unlink(missing_ok=True)
                process = subprocess.Popen([WINNOW, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(process.kill)
                process.stdout.read(10)
                getattr(process, stream).close()
                if name == "stderr":
                    process.send_signal(signal.SIGINT)
                    process.stdout.read()
                self.assertEqual(process.wait(60), 141 if name == "stdout" else 130)
                for left in (process.stdout, process.stderr):
                    left.close()
                self.assertGreater(session.stat().st_size, 0)
                self.assertEqual(list(self.folder.glob(".*.tmp")), [])
        chat = self.folder / "chat.session"
        process = subprocess.Popen([WINNOW, "chat", "-m", self.model, "-n", "4", "--session", chat], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        process.stderr.close()
        process.stdout.close()
        process.stdin.write(b"the house\nthe tree\n")
        process.stdin.close()
        self.assertEqual(process.wait(60), 141)
        self.assertTrue(chat.exists())

    def test_a_conversation_that_waits(self):
        code, printed = self.interrupt("chat", "-m", self.model, ready=b"template")
        self.assertEqual(code, 143, printed)

    def test_json_of_an_interrupted_perplexity(self):
        code, printed = self.interrupt(*self.long_runs()["perplexity"], "--json", ready=b"windows of 64", settle=1.5)
        self.assertEqual(code, 143, printed)
        found = json.loads(printed[printed.index("{"):printed.rindex("}") + 1])
        self.assertFalse(found["finished"])
        self.assertGreater(found["tokens_scored"], 0)

    def test_the_probes_that_are_finished_are_written(self):
        path = self.folder / "probes.json"
        code, printed = self.interrupt("probe", "all", "-m", self.model, "-t", "1", "-f", self.file("probe.txt", TEXT * 120), "-n",
                                       "400", "--samples", "90", "--json", path, ready=b"wavelet: ")
        self.assertEqual(code, 143, printed[-400:])
        self.assertIn("probes are finished", printed)
        self.assertGreaterEqual(len(json.loads(path.read_text())["probes"]), 1)

    def test_compare_and_replay(self):
        code, _ = self.interrupt("compare", "-m", self.model, "-t", "1", "-f", self.text, "-q", "Who?", "-n", "300", "--kv-method",
                                 ",".join(["streaming:sinks=2"] * 300), "--kv-size", "32", ready=b"prompt ")
        self.assertEqual(code, 143)
        recording = self.folder / "recording.safetensors"
        self.assert_done(winnow("probe", "-m", self.model, "-f", self.text, "-n", "300", "--prompt-tokens", "8", "--dump-qkv",
                                recording))
        out = self.folder / "out.safetensors"
        trace = self.folder / "replayed.jsonl"
        process = subprocess.Popen([WINNOW, "replay", "--in", recording, "--out", out, "--trace", trace, "--method", "h2o",
                                    "--size", "64", "--cpu-target", "reference"], stderr=subprocess.PIPE)
        time.sleep(0.05)
        process.terminate()
        err = process.communicate(timeout=60)[1].decode()
        if process.returncode == -signal.SIGTERM or process.returncode == 0:
            return  # before the handler was installed, or after the work
        self.assertEqual(process.returncode, 143, err)
        self.assertIn("was not written", err)
        self.assertFalse(out.exists())


class Memory(EndsTest):
    """Under any limit of the address space (ulimit -v) a command works or reports an error."""

    def under(self, limit_kib, *command):
        return subprocess.run(["sh", "-c", f"ulimit -v {limit_kib}; exec \"$0\" \"$@\"", WINNOW, *map(str, command)],
                              input=b"the old man\n", capture_output=True, check=False, timeout=120)

    def commands(self):
        m = ["-m", self.model, "-t", "3"]
        method = ["--kv-method", "h2o", "--kv-size", "24"]
        short = ["-f", self.text, "-n", "64"]
        return [
            ["run", *m, "-f", self.text, "-n", "4", *method],
            ["run", "-p", "the", "-n", "2", "-t", "2"],
            ["chat", *m, "-n", "4"],
            ["perplexity", *m, "-f", self.text, "-c", "64", "--chunks", "1", *method],
            ["bench", *m, "-p", "32", "-n", "4", "-r", "1", "-B", "3"],
            ["compare", *m, "-f", self.text, "-q", "Who?", "-n", "4", *method],
            ["eval", "perplexity", *m, "--data", self.text, "--lengths", "64", "--chunks", "1", *method],
            ["probe", "sparsity", *m, *short, "--samples", "1", "--report", self.folder / "probe.html"],
            ["inspect", self.model],
            ["tokenize", "-m", self.model, "-f", self.text],
            ["methods"],
        ]

    @unittest.skipIf(SANITIZED, "skipped: sanitizers reserve terabytes of address space")
    def test_every_command_under_every_limit(self):
        deadline = time.monotonic() + 120
        limits = (24, 28, 32, 36, 40, 44, 48, 56, 64, 80, 96, 128, 192, 256, 512)
        # With less, the loader or the libraries fail before main().
        limits = [mib for mib in limits if self.under(mib * 1024, "--version").returncode == 0]
        self.assertIn(64, limits)
        for command in self.commands():
            ended = set()
            for limit_mib in limits:
                if time.monotonic() > deadline:
                    break
                done = self.under(limit_mib * 1024, *command)
                err = done.stderr.decode("utf-8", "replace")
                ended.add(done.returncode)
                self.assertIn(done.returncode, (0, 1), (limit_mib, command, err))
                # A chat continues without a message it has no memory for, and exits with 1.
                said = err.count("error:") + err.count("warning: memory: ") * (command[0] == "chat")
                self.assertEqual(said, done.returncode, (limit_mib, command, err))
                self.assertNotIn("terminate called", err)
            self.assertIn(0, ended, command)

    @unittest.skipIf(SANITIZED, "skipped: sanitizers reserve terabytes of address space")
    def test_threads_that_are_refused(self):
        done = self.under(200 * 1024, "run", "-m", self.model, "-p", "the", "-n", "1", "-t", "400")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"-t", done.stderr)
        self.assertEqual(done.stderr.count(b"error:"), 1, done.stderr)


class Shrinking(EndsTest):
    @unittest.skipIf(SANITIZED, "skipped: sanitizers handle SIGBUS themselves")
    def test_a_model_that_is_truncated_while_it_is_used(self):
        model = self.file("shrinking.gguf", self.model.read_bytes())
        process = subprocess.Popen([WINNOW, "chat", "-m", model, "-t", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        while b"template" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        os.truncate(model, 4096)
        _, err = process.communicate(b"the old man saw\n", timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assert_names(err.decode(), [str(model), "truncated"])
        self.assertEqual(err.count(b"winnow: error"), 1, err)  # reported once, whichever thread found it


if __name__ == "__main__":
    unittest.main()
