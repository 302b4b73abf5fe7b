"""llama-server's paths, flags and environment variables."""

import pathlib
import re
import signal
import stat
import subprocess
import tempfile
import time
import unittest
import urllib.request

from harness import WINNOW, Server, ServerTest, read_all
from http_client import request_bytes


class Native(ServerTest):
    flags = ("--metrics", "-np", "4", "-a", "my-model", "-cb", "--no-webui", "-c", "256")

    def test_completion(self):
        body = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0, "n_probs": 2, "return_tokens": True}
        status, answer = self.server.post("/completion", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["model"], "my-model")
        self.assertTrue(answer["stop"])
        self.assertEqual(len(answer["tokens"]), answer["tokens_predicted"])
        for name in ("prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_second",
                     "cache_n"):
            self.assertIn(name, answer["timings"])
        events = self.server.stream("/completion", body)
        self.assertEqual("".join(e["content"] for e in events), answer["content"])
        self.assertTrue(events[-1]["stop"])

    def test_what_ends_it(self):
        for more, kind, truncated in (({"n_predict": 4}, "limit", False), ({}, "limit", True)):
            status, answer = self.server.post("/completion", {"prompt": "Once", "temperature": 0, "ignore_eos": True, **more})
            self.assertEqual((status, answer["stop_type"], answer["truncated"]), (200, kind, truncated), answer)

    def test_refusals_name_their_field(self):
        long = "the harbour lay quiet " * 100
        for path, body, param in (
                ("/completion", {"prompt": long}, "prompt"), ("/v1/completions", {"prompt": long}, "prompt"),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": long}]}, "messages"),
                ("/v1/sessions", {"id": "x", "document": long}, "document"), ("/completion", {"prompt": "x", "n": 5}, "n"),
                ("/completion", {"prompt": "x", "id_slot": 4}, "id_slot"), ("/completion", {"prompt": "x", "priority": 1}, "priority")):
            status, answer = self.server.post(path, body)
            self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
        status, answer = self.server.post("/v1/sessions", {"id": "x", "document": long, "stream": True})
        self.assertEqual(status, 400, answer)

    def test_values_that_it_limits(self):
        body = {"prompt": "Once upon a time", "n_predict": 4}
        status, greedy = self.server.post("/completion", {**body, "temperature": 0})
        self.assertEqual(status, 200, greedy)
        status, answer = self.server.post("/completion", {**body, "temperature": -1, "n_probs": 1000})
        self.assertEqual((status, answer.get("content")), (200, greedy["content"]), answer)
        settings = answer["generation_settings"]
        self.assertEqual((settings["temperature"], settings["n_probs"]), (0, 100))
        self.assertEqual(len(answer["completion_probabilities"][0]["top_logprobs"]), 100)
        status, answer = self.server.post("/completion", {**body, "seed": 4294967295})
        self.assertEqual(status, 200, answer)
        self.assertNotEqual(answer["generation_settings"]["seed"], 4294967295, "drawn, as in llama-server")

    def test_a_running_request_is_listed_at_its_slot(self):
        with self.server.connect() as client:
            client.sendall(request_bytes("POST", "/completion", {"prompt": "Once", "id_slot": 2, "ignore_eos": True, "stream": True,
                                                                 "n_predict": 1 << 20, "kv_method": "streaming", "kv_size": 64}))
            deadline = time.monotonic() + 30
            slots = []
            while not any(slot["is_processing"] for slot in slots):
                self.assertLess(time.monotonic(), deadline)
                slots = self.server.get("/slots")[1]
            self.assertEqual([slot["id"] for slot in slots], [0, 1, 2, 3])
            self.assertEqual([slot["is_processing"] for slot in slots], [False, False, True, False], slots)
            self.assertEqual(slots[2]["session"], "slot-2")

    def test_samplers_that_are_missing(self):
        off = {"mirostat": 0, "dry_multiplier": 0.0, "xtc_probability": 0, "top_n_sigma": -1, "dynatemp_range": 0}
        for path in ("/completion", "/v1/completions"):
            status, answer = self.server.post(path, {"prompt": "x", "n_predict": 1, **off})
            self.assertEqual(status, 200, answer)
            for name in off:
                status, answer = self.server.post(path, {"prompt": "x", "n_predict": 1, **off, name: 0.5})
                self.assertEqual((status, answer["error"]["param"]), (400, name), answer)

    def test_tokens(self):
        _, tokens = self.server.post("/tokenize", {"content": "Hello world"})
        status, text = self.server.post("/detokenize", tokens)
        self.assertEqual((status, text["content"].strip()), (200, "Hello world"))
        _, prompt = self.server.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})
        self.assertIn("Hi", prompt["prompt"])

    def test_pages(self):
        status, props = self.server.get("/props")
        self.assertEqual((status, props["total_slots"], props["model_alias"]), (200, 4, "my-model"))
        status, slots = self.server.get("/slots")
        self.assertEqual((status, len(slots)), (200, 4))
        self.assertEqual(self.server.get("/health"), (200, {"status": "ok"}))
        status, _, text = self.server.request("GET", "/metrics")
        self.assertEqual(status, 200)
        for name in (b"winnow_reserved_bytes", b"llamacpp:tokens_predicted_total", b"vllm:num_requests_running"):
            self.assertIn(name, text)
        self.assertEqual(self.server.request("GET", "/")[0], 404, "--no-webui")
        status, error = self.server.post("/v1/embeddings", {"input": "x"})
        self.assertEqual((status, error["error"]["type"]), (501, "not_supported_error"))


class MemoryLimit(unittest.TestCase):
    """The limit follows MemAvailable in /proc/meminfo, with a tolerance: the server itself takes some memory first."""

    def limit(self, *flags):
        with Server("--metrics", *flags) as server:
            return int(server.metrics()["winnow_memory_limit_bytes"])

    def test_is_by_what_the_machine_has(self):
        available = int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024
        limit = self.limit()
        self.assertGreater(limit, 0)
        self.assertLess(limit, available)
        self.assertEqual(self.limit("--memory-limit", "0"), 0)
        self.assertEqual(self.limit("--memory-limit", "1G"), 1 << 30)


class Flags(unittest.TestCase):
    def serve(self, *flags, env=None):
        import os
        return subprocess.run([WINNOW, "serve", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False, env={**os.environ, **(env or {})})

    def test_help_is_complete(self):
        done = self.serve("--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("--host", "--port", "--api-key-file", "--metrics", "--no-slots", "--session-path", "--memory-limit",
                     "--max-token-gap", "--ssl-key-file", "--threads-http", "--chat-template-file", "--no-jinja", "--alias",
                     "--kv-method", "--temp", "--seed", "LLAMA_ARG_PORT"):
            self.assertIn(flag, done.stdout)

    def test_what_cannot_be_is_misuse(self):
        for flags, part in ((["--port", "70000"], "--port"), (["--ssl-key-file", "x"], "--ssl-cert-file"), (["-np", "0"], "-np"),
                            (["--embedding"], "no embeddings"), (["--threads-http", "99"], "--threads-http"),
                            (["--kv-method", "h2o"], "budget"), (["--prot", "1"], "--port"),
                            (["--max-token-gap", "0.5"], "--max-token-gap"), (["--max-waiting", "0"], "--max-waiting")):
            done = self.serve(*flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_what_goes_wrong_is_a_failure(self):
        with Server() as server:
            done = self.serve("--port", str(server.port))
            self.assertEqual(done.returncode, 1)
            self.assertIn("choose another with --port", done.stderr)
        done = self.serve("--port", "0", "-m", "/nonexistent.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nonexistent", done.stderr)

    def test_environment(self):
        env = {"LLAMA_ARG_ALIAS": "from-env", "LLAMA_ARG_ENDPOINT_METRICS": "1", "LLAMA_ARG_N_PARALLEL": "3"}
        with Server("-np", "2", env=env) as server:
            self.assertEqual(server.get("/v1/models")[1]["data"][0]["id"], "from-env")
            self.assertEqual(server.request("GET", "/metrics")[0], 200)
            self.assertEqual(len(server.get("/slots")[1]), 2, "the command line wins")
        env = {"LLAMA_API_KEY": "old", "WINNOW_ARG_KV_METHOD": "h2o", "WINNOW_ARG_KV_SIZE": "64", "LLAMA_ARG_CHAT_TEMPLATE": "chatml"}
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            with Server("--kv-method", "full", env=env) as server:
                self.assertEqual(server.request("GET", "/props", headers={"Authorization": "Bearer old"})[0], 200)
            template.write("{{ messages[0].content }}")
            template.flush()
            with Server("--api-key", "new", "--kv-memory", "8M", "--chat-template-file", template.name, env=env) as server:
                for key, status in (("new", 200), ("old", 401)):
                    self.assertEqual(server.request("GET", "/props", headers={"Authorization": f"Bearer {key}"})[0], status, key)
        env = {"LLAMA_ARG_NOT_KNOWN_HERE": "1", "LLAMA_CHAT_TEMPLATE_KWARGS": '{"name": "default"}'}
        with Server("--chat-template", "{{ name }} {{ messages[0].content }}", env=env) as server:
            body = {"messages": [{"role": "user", "content": "hi"}]}
            self.assertEqual(server.post("/apply-template", body)[1]["prompt"], "default hi")
            body["chat_template_kwargs"] = {"name": "own"}
            self.assertEqual(server.post("/apply-template", body)[1]["prompt"], "own hi")
            self.assertIn("LLAMA_ARG_NOT_KNOWN_HERE has no effect", server.log)
        done = self.serve("--chat-template-kwargs", "[1]")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a JSON object", done.stderr)
        done = self.serve(env={"LLAMA_ARG_PORT": "many"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("LLAMA_ARG_PORT", done.stderr)

    def test_environment_of_keys_sampling_and_page(self):
        with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text("# who may ask\nalpha\n\n#beta\n", encoding="utf-8")
            env = {"LLAMA_ARG_API_KEY_FILE": str(keys), "LLAMA_ARG_UI": "off", "LLAMA_ARG_TEMPERATURE": "0.5", "LLAMA_ARG_TOP_K": "7",
                   "LLAMA_ARG_TOP_P": "0.75", "LLAMA_ARG_MIN_P": "0.25", "LLAMA_ARG_REPEAT_PENALTY": "1.5",
                   "LLAMA_ARG_PRESENCE_PENALTY": "0.125", "LLAMA_ARG_FREQUENCY_PENALTY": "0.375"}
            with Server(env=env) as server:
                self.assertEqual(server.get("/props")[0], 401)
                for key, status in (("alpha", 200), ("# who may ask", 401), ("#beta", 401), ("beta", 401)):
                    self.assertEqual(server.request("GET", "/props", headers={"Authorization": f"Bearer {key}"})[0], status, key)
                self.assertEqual(server.request("GET", "/")[0], 401, "there is no page")
                _, props = server.get("/props", headers={"X-Api-Key": "alpha"})
                params = props["default_generation_settings"]["params"]
                for name, value in (("temperature", 0.5), ("top_k", 7), ("top_p", 0.75), ("min_p", 0.25), ("repeat_penalty", 1.5),
                                    ("presence_penalty", 0.125), ("frequency_penalty", 0.375)):
                    self.assertEqual(params[name], value, name)
            keys.write_text("# nobody\n", encoding="utf-8")
            done = self.serve("--api-key-file", str(keys))
            self.assertEqual(done.returncode, 2)
            self.assertIn("no key", done.stderr)

    def test_priorities_are_allowed(self):
        with Server("--scheduling-policy", "priority", "-np", "-1") as server:
            status, answer = server.post("/completion", {"prompt": "Once", "n_predict": 2, "priority": -5})
            self.assertEqual(status, 200, answer)
            self.assertEqual(server.get("/props")[1]["total_slots"], 32, "-1: as many as suit")
        done = self.serve("--scheduling-policy", "sjf")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected fcfs or priority", done.stderr)

    def test_environment_of_flags_without_effect(self):
        on = {"LLAMA_ARG_FLASH_ATTN": "on", "LLAMA_ARG_KV_UNIFIED": "1", "LLAMA_ARG_CACHE_RAM": "4096", "LLAMA_ARG_MLOCK": "true",
              "LLAMA_ARG_NO_MMAP": "whatever", "LLAMA_ARG_KV_OFFLOAD": "0", "LLAMA_ARG_EMBEDDINGS": "off", "LLAMA_ARG_CONTEXT_SHIFT": "0"}
        with Server(env=on) as server:
            for flag in ("--cache-ram", "--mlock", "--no-mmap", "--no-kv-offload"):
                self.assertIn(f"{flag} has no effect", server.log)
        for name, value, part in (("EMBEDDINGS", "1", "no embeddings"), ("RERANKING", "on", "no reranking"), ("POOLING", "mean", "no embeddings"),
                                  ("HF_REPO", "a/b", "downloads nothing"), ("CONTEXT_SHIFT", "1", "nothing is shifted out"),
                                  ("FLASH_ATTN", "perhaps", "perhaps"), ("MLOCK", "perhaps", "expected on or off")):
            done = self.serve(env={f"LLAMA_ARG_{name}": value})
            self.assertEqual(done.returncode, 2, name)
            self.assertIn(f"LLAMA_ARG_{name}", done.stderr)
            self.assertIn(part, done.stderr)

    def test_session_folder_is_made(self):
        with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
            path = pathlib.Path(folder) / "sessions"
            for name in ("a", "b"):  # creates the folder, then finds it
                with Server("--session-path", f"{path}/") as server:
                    self.assertEqual(server.post("/v1/sessions", {"id": name, "document": "The inn."})[0], 200)
                    self.assertEqual(server.post(f"/v1/sessions/{name}/save", {})[0], 200)
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o700)
            for wrong, part in ((path / "not" / "there", "mkdir -p"), (path / "a.session", "is not a folder"),
                                (path / "a.session" / "b", "Not a directory")):
                done = self.serve("--port", "0", "--session-path", str(wrong))
                self.assertEqual(done.returncode, 1, wrong)
                self.assertIn(f"--session-path {wrong}: ", done.stderr)
                self.assertIn(part, done.stderr)
                self.assertFalse(wrong.parent.name == "not" and wrong.parent.exists(), "only the last part is made")

    def test_slot_save_path(self):
        body = {"prompt": "Once upon a time", "n_predict": 4, "id_slot": 0}
        with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
            path = pathlib.Path(folder) / "slots"
            with Server("--slot-save-path", path) as server:
                self.assertEqual(server.post("/completion", body)[0], 200)
                status, saved = server.post("/slots/0?action=save", {"filename": "story.bin"})
                self.assertEqual(status, 200, saved)
                self.assertTrue(list(path.glob("story.bin*")), "written below the folder, which is created")
            with Server("--session-path", path) as server:
                status, restored = server.post("/slots/0?action=restore", {"filename": "story.bin"})
                self.assertEqual((status, restored.get("n_restored")), (200, saved["n_saved"]), restored)
        with Server() as server:
            self.assertEqual(server.post("/completion", body)[0], 200)
            status, refused = server.post("/slots/0?action=save", {"filename": "story.bin"})
            self.assertEqual(status, 400, "without the flag there is no folder")
            self.assertIn("no session path", refused["error"]["message"])

    def test_no_ui(self):
        for flags, status in (((), 200), (("--no-ui",), 404), (("--no-ui", "--ui"), 200)):
            with self.subTest(flags), Server(*flags) as server:
                for path in ("/", "/page/app.js"):
                    self.assertEqual(server.request("GET", path)[0], status, path)

    def test_ubatch_size(self):
        """Tokens of a prompt computed at a time: the buffers are smaller, the answer is the same."""
        def fixed_bytes_and_answer(*flags):
            with Server("--metrics", *flags) as server:
                status, answer = server.post("/completion", {"prompt": "The harbour lay quiet. " * 30, "n_predict": 8, "temperature": 0})
                self.assertEqual(status, 200, answer)
                self.assertGreater(answer["timings"]["prompt_n"], 128)
                return server.metrics()["winnow_fixed_bytes"], answer["content"]
        whole, small, same, least = map(lambda flags: fixed_bytes_and_answer(*flags), (
            (), ("-ub", "64"), ("-b", "64"), ("-b", "64", "--ubatch-size", "32")))
        self.assertLess(small[0], whole[0] - 1e6)
        self.assertEqual(same[0], small[0], "-b is an upper bound of -ub")
        self.assertLess(least[0], small[0])
        self.assertEqual({answer for _, answer in (whole, small, same, least)}, {whole[1]})
        for flags in (("-ub", "0"), ("-b", "0")):
            done = self.serve("--port", "0", *flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn("at least 1", done.stderr)

    def test_threads_batch(self):
        """-tb is accepted with a note: prompts use the threads of -t."""
        def n_threads(*flags):
            with Server("-t", "1", *flags) as server:
                status, answer = server.post("/completion", {"prompt": "The harbour lay quiet. " * 30, "n_predict": 2})
                self.assertEqual(status, 200, answer)
                n = len(list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()))
            return n, "--threads-batch has no effect: prefill and decode share the threads of -t" in server.log
        n, is_noted = n_threads()
        self.assertFalse(is_noted)
        for flag in ("-tb", "--threads-batch"):
            self.assertEqual(n_threads(flag, "3"), (n, True))
        self.assertEqual(n_threads("-t", "3"), (n + 2, False))

    def test_open_to_all_is_warned_of(self):
        with Server("--host", "0.0.0.0") as server:
            self.assertIn("--api-key", server.log)
        with Server("--host", "0.0.0.0", "--api-key", "k") as server:
            self.assertNotIn("can use this server", server.log)

    def test_saves_where_nobody_reads_its_log(self):
        with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
            with subprocess.Popen([WINNOW, "serve", "--port", "0", "--session-path", folder], stderr=subprocess.PIPE, text=True) as server:
                url = next(line for line in server.stderr if line.startswith("ready")).split()[1].removesuffix(",")
                request = urllib.request.Request(f"{url}/v1/sessions", data=b'{"id": "a", "document": "The inn."}',
                                                 headers={"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    self.assertEqual(answer.status, 200)
                server.stderr.close()
                server.terminate()
                self.assertEqual(server.wait(60), 0)
            self.assertTrue((pathlib.Path(folder) / "a.session").exists())

    def test_sigterm_finishes_running_answers(self):
        with Server("--default-max-tokens", "64") as server:
            import threading
            answers = []
            body = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
            thread = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", body)))
            thread.start()
            while not any(slot["is_processing"] for slot in server.get("/slots")[1]):
                pass
            code = server.stop()
            thread.join()
            self.assertEqual(code, 0, server.log)
            self.assertEqual(answers[0][0], 200, answers)
            self.assertEqual(answers[0][1]["usage"]["completion_tokens"], 400)

    def test_a_second_signal_ends_it_at_once(self):
        """Although an answer without end is running. Without a second signal, the server goes on with it."""
        endless = {"prompt": "Once", "ignore_eos": True, "max_tokens": 100000000, "stream": True, "kv_method": "streaming", "kv_size": 64}
        for first, second, code in ((signal.SIGTERM, signal.SIGTERM, 143), (signal.SIGINT, signal.SIGINT, 130), (signal.SIGTERM, signal.SIGINT, 130)):
            with self.subTest(first=first, second=second), Server() as server, server.connect() as client:
                client.sendall(request_bytes("POST", "/v1/completions", endless))
                self.assertIn(b"200 OK", client.recv(4096))
                server.process.send_signal(first)
                deadline = time.monotonic() + 30
                while "interrupt again to stop at once" not in server.log:
                    self.assertLess(time.monotonic(), deadline, server.log)
                    time.sleep(0.01)
                for _ in range(20):  # it still answers, half a second later too
                    self.assertTrue(client.recv(65536))
                    time.sleep(0.025)
                self.assertIsNone(server.process.poll())
                start = time.monotonic()
                server.process.send_signal(second)
                self.assertEqual(server.process.wait(30), code)
                self.assertLess(time.monotonic() - start, 4)
                self.assertNotIn(b"[DONE]", read_all(client))


if __name__ == "__main__":
    unittest.main()
