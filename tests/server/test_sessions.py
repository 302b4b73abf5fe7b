"""Sessions over HTTP: a document is read once, asked about often, forked, saved, and restored after a restart."""

import json
import pathlib
import tempfile
import threading
import time
import unittest

from harness import Server, ServerTest

FACTS = "The harbour lay quiet. A red lantern hung above the door of the inn. "
DOCUMENT = FACTS * 15 + "The code of the door was 48213. " + FACTS * 15
GREEDY = {"temperature": 0, "max_tokens": 12}


class Sessions(ServerTest):
    flags = ("--session-path", "FOLDER")

    def make(self, name, **more):
        status, made = self.server.post("/v1/sessions", {"id": name, "document": DOCUMENT, **more})
        self.assertEqual(status, 200, made)
        return made

    def ask(self, session, question="What was the code?"):
        status, answer = self.server.post("/v1/chat/completions",
                                          {"session": session, "messages": [{"role": "user", "content": question}], **GREEDY})
        self.assertEqual(status, 200, answer)
        return answer

    def test_read_once_ask_often(self):
        made = self.make("often")
        self.assertGreater(made["n_tokens"], 300)
        self.server.post("/v1/sessions/often/fork", {"id": "twin"})
        first = self.ask("often")
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], made["n_tokens"])
        # The same question on the fork: the same answer, because the caches are bitwise equal.
        self.assertEqual(self.ask("twin")["choices"][0]["message"]["content"], first["choices"][0]["message"]["content"])
        second = self.ask("often", "And the lantern?")
        self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], made["n_tokens"])

    def test_the_whole_conversation_may_be_sent(self):
        """With an evicting method too, where the session keeps the beginning of a stop string that the client does not see."""
        for method in ({}, {"kv_method": "streaming", "kv_size": 128}):
            with self.subTest(**method):
                name = "chat" + str(len(method))
                self.make(name, **method)
                messages = []

                def say(question, **more):
                    messages.append({"role": "user", "content": question})
                    status, answer = self.server.post("/v1/chat/completions", {"session": name, "messages": messages, **GREEDY, **more})
                    if status == 200:
                        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"].strip()})
                    return status, answer

                status, first = say("What was the code?")
                self.assertEqual(status, 200, first)
                text = messages[-1]["content"]
                status, second = say("What was the code?", stop=[text[len(text) // 2:len(text) // 2 + 4]])
                self.assertEqual(status, 200, second)
                self.assertEqual(second["choices"][0]["finish_reason"], "stop")
                status, third = say("And the lantern?")
                self.assertEqual(status, 200, third)
                for older, newer in ((first, second), (second, third)):
                    self.assertGreater(newer["usage"]["prompt_tokens_details"]["cached_tokens"], older["usage"]["prompt_tokens"])
                messages[1] = {"role": "assistant", "content": "Another answer."}
                status, refused = say("Is it so?")
                self.assertEqual(status, 400, refused)
                self.assertIn("whole conversation, unchanged", refused["error"]["message"])

    def test_a_budget_of_its_own(self):
        made = self.make("small", kv_method="streaming", kv_size=64)
        self.assertTrue(made["kv"]["method"].startswith("streaming"), made)
        self.assertLess(made["kv"]["bytes"], made["kv"]["bytes_full"] / 3)
        status, kept = self.server.get("/v1/sessions/small/kept?by_head=1")
        self.assertEqual(status, 200)
        self.assertEqual(len(kept["tokens"]), made["n_tokens"])
        self.assertEqual(len(kept["by_head"]), kept["n_layers"] * kept["n_kv_heads"])
        self.assertEqual(kept["share"][0], 1, "a sink")
        self.assertEqual(kept["share"][len(kept["share"]) // 2], 0, "streaming keeps the end")

    def test_list_and_delete(self):
        self.make("gone")
        self.assertIn("gone", [s["id"] for s in self.server.get("/v1/sessions")[1]["data"]])
        self.assertEqual(self.server.request("DELETE", "/v1/sessions/gone")[0], 200)
        self.assertEqual(self.server.get("/v1/sessions/gone")[0], 404)
        self.assertEqual(self.server.request("DELETE", "/v1/sessions/gone")[0], 404)

    def test_save_and_restore(self):
        made = self.make("kept")
        status, saved = self.server.post("/v1/sessions/kept/save", {"name": "file"})
        self.assertEqual(status, 200, saved)
        self.assertTrue((self.folder / "file").exists() or list(self.folder.glob("file*")), "written below --session-path")
        answer = self.ask("kept")["choices"][0]["message"]["content"]
        status, restored = self.server.post("/v1/sessions/again/restore", {"name": "file"})
        self.assertEqual(status, 200, restored)
        self.assertEqual(restored["n_tokens"], made["n_tokens"])
        self.assertEqual(self.ask("again")["choices"][0]["message"]["content"], answer)

    def test_names_do_not_leave_the_folder(self):
        self.make("named")
        for name in ("../evil", "/tmp/evil", "a/b", ".hidden", "a\0b", "x" * 500, ""):
            with self.subTest(name):
                status, answer = self.server.post("/v1/sessions/named/save", {"name": name})
                self.assertEqual(status, 400, answer)
        status, _ = self.server.post("/slots/0?action=restore", {"filename": "../evil"})
        self.assertIn(status, (400, 404))

    def test_slots(self):
        """Conversations as llama-server's clients keep them: whole prompts into one slot, its state in a file."""
        def complete(prompt):
            body = {"prompt": prompt, "id_slot": 1, "cache_prompt": True, "n_predict": 6, "return_tokens": True, "temperature": 0}
            status, answer = self.server.post("/completion", body)
            self.assertEqual((status, answer["id_slot"]), (200, 1), answer)
            return answer
        _, text = self.server.post("/tokenize", {"content": DOCUMENT, "add_special": True})
        _, more = self.server.post("/tokenize", {"content": " What was the code?"})
        first = complete(text["tokens"])
        status, saved = self.server.post("/slots/1?action=save", {"filename": "slot.bin"})
        self.assertEqual((status, saved["id_slot"]), (200, 1), saved)
        n_read = saved["n_saved"]
        self.assertEqual(n_read, len(text["tokens"]) + first["tokens_predicted"] - 1)
        whole = text["tokens"] + first["tokens"] + more["tokens"]
        second = complete(whole)
        self.assertEqual(second["timings"]["cache_n"], n_read, second["timings"])
        self.assertLess(complete("Another story")["timings"]["cache_n"], 16)
        status, restored = self.server.post("/slots/1?action=restore", {"filename": "slot.bin"})
        self.assertEqual((status, restored["n_restored"]), (200, n_read), restored)
        third = complete(whole)
        self.assertEqual(third["timings"]["cache_n"], n_read)
        self.assertEqual(third["tokens"], second["tokens"])
        self.assertEqual(self.server.post("/slots/1?action=erase", {})[0], 200)
        self.assertEqual(self.server.post("/slots/1?action=save", {"filename": "slot.bin"})[0], 404)

    def test_damaged_and_missing_files(self):
        (self.folder / "broken").write_bytes(b"no session" * 100)
        for name in ("broken", "nothing"):
            status, answer = self.server.post("/v1/sessions/x/restore", {"name": name})
            self.assertIn(status, (400, 404), answer)
            self.assertIn("error", answer)
        self.assertEqual(self.server.get("/v1/sessions/x")[0], 404)

    def test_progress_and_events(self):
        status, _, body = self.server.request("POST", "/v1/sessions", {"id": "streamed", "document": DOCUMENT, "stream": True})
        self.assertEqual(status, 200)
        events = [line[6:] for line in body.decode().split("\n\n") if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(json.loads(events[-2])["id"], "streamed")
        with self.server.connect() as client:
            client.sendall(b"GET /v1/sessions/streamed/events HTTP/1.1\r\nHost: x\r\n\r\n")
            data = b""
            while b"\n\n" not in data.partition(b"\r\n\r\n")[2]:
                data += client.recv(65536)
        self.assertIn(b"text/event-stream", data)
        self.assertIn(b'"changes"', data)


    def test_events_while_tokens_are_generated(self):
        """At most ten per second, whatever the number of tokens."""
        self.make("watched")
        n_before = self.server.get("/v1/sessions/watched")[1]["n_tokens"]
        arrivals = []  # (seconds since the request, number of tokens)

        def watch():
            with self.server.connect() as client, client.makefile("rb") as lines:
                start = time.monotonic()
                client.sendall(b"GET /v1/sessions/watched/events HTTP/1.1\r\nHost: x\r\n\r\n")
                for line in lines:
                    if line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        if event.get("deleted"):
                            return
                        arrivals.append((time.monotonic() - start, event["session"]["n_tokens"]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        status, answer = self.server.post("/completion", {"session": "watched", "prompt": " ", "ignore_eos": True, "n_predict": 500})
        self.assertEqual((status, answer.get("tokens_predicted")), (200, 500), answer)
        time.sleep(0.3)  # for the last event
        self.server.request("DELETE", "/v1/sessions/watched")
        watcher.join(30)
        self.assertFalse(watcher.is_alive())
        for i, (seconds, _) in enumerate(arrivals):
            self.assertGreaterEqual(seconds, 0.1 * i, "nothing is sent before its time")
        counts = [n for _, n in arrivals]
        self.assertEqual(counts, sorted(counts))
        self.assertGreater(counts[-1], n_before + 499)
        self.assertGreater(sum(n_before < n < counts[-1] for n in counts), 0, f"events during the answer: {arrivals}")


class Questions(ServerTest):
    """If the last question determined which entries are kept, another question must read the text again."""
    flags = ("--kv-method", "snapkv", "--kv-size", "128")

    def test_a_chat_is_read_anew_each_turn(self):
        def ask(prompt, **more):
            status, answer = self.server.post("/completion", {"prompt": prompt, "n_predict": 6, "return_tokens": True, "temperature": 0, **more})
            self.assertEqual(status, 200, answer)
            return answer
        _, text = self.server.post("/tokenize", {"content": DOCUMENT, "add_special": True})
        _, more = self.server.post("/tokenize", {"content": " What was the code?"})
        first = ask(text["tokens"])
        self.assertLess(first["kv"]["kept"], len(text["tokens"]) / 2)
        whole = text["tokens"] + first["tokens"] + more["tokens"]
        n_read = len(text["tokens"]) + len(first["tokens"]) - 1
        for asked, n_reused, prefix in (({}, 0, "none"), ({"reuse_across_questions": True}, n_read, "compressed")):
            second = ask(whole, **asked)
            self.assertEqual((second["timings"]["cache_n"], second["kv"]["prefix"]), (n_reused, prefix), asked)


class Restart(unittest.TestCase):
    def test_sessions_outlive_the_server(self):
        with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
            body = {"session": "doc", "messages": [{"role": "user", "content": "What was the code?"}], **GREEDY}
            with Server("--session-path", folder) as server:
                server.post("/v1/sessions", {"id": "doc", "document": DOCUMENT})
                server.post("/v1/sessions/doc/fork", {"id": "first"})
                _, before = server.post("/v1/chat/completions", {**body, "session": "first"})
            self.assertTrue(list(pathlib.Path(folder).iterdir()), "saved on SIGTERM")
            with Server("--session-path", folder) as server:
                status, after = server.post("/v1/chat/completions", body)
                self.assertEqual(status, 200, after)
                self.assertEqual(after["choices"][0]["message"]["content"], before["choices"][0]["message"]["content"])
                messages = [*body["messages"], before["choices"][0]["message"], {"role": "user", "content": "And the lantern?"}]
                status, went_on = server.post("/v1/chat/completions", {**body, "session": "first", "messages": messages})
                self.assertEqual(status, 200, went_on)
                self.assertGreater(went_on["usage"]["prompt_tokens_details"]["cached_tokens"], before["usage"]["prompt_tokens"])

    def test_a_saved_text_is_not_read_again(self):
        read = [{"role": "user", "content": DOCUMENT}, {"role": "assistant", "content": "I have read it."}]
        body = {"messages": [*read, {"role": "user", "content": "What was the code?"}], **GREEDY}
        with tempfile.TemporaryDirectory(prefix="winnow-server-") as folder:
            with Server("--session-path", folder) as server:
                _, before = server.post("/v1/chat/completions", body)
                _, made = server.post("/v1/sessions", {"id": "doc", "messages": read})
            for flags, n_reused in ((), made["n_tokens"]), (("--no-cache-prompt",), 0):
                with self.subTest(flags), Server("--session-path", folder, *flags) as server:
                    status, after = server.post("/v1/chat/completions", body)
                    self.assertEqual(status, 200, after)
                    self.assertEqual(after["choices"][0]["message"]["content"], before["choices"][0]["message"]["content"])
                    self.assertEqual(after["usage"]["prompt_tokens_details"]["cached_tokens"], n_reused)
                    self.assertEqual(after["kv"]["prefix"], "exact" if n_reused else "none")


if __name__ == "__main__":
    unittest.main()
