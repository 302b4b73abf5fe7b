"""Saved sessions survive a server killed while saving, a full disk, and a folder without write permission."""

import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from harness import Server

ROUNDS = int(os.environ.get("WINNOW_SOAK_KILLS", 4))  # make soak sets it
SHORT = "The code of the door was 48213. "
QUESTION = {"messages": [{"role": "user", "content": "What was the code?"}], "temperature": 0, "max_tokens": 8}


def document(n):
    return SHORT + "The harbour lay quiet. A red lantern hung above the door of the inn. " * n


def make(server, name, n):
    status, made = server.post("/v1/sessions", {"id": name, "document": document(n)})
    assert status == 200, made
    return made["n_tokens"]


def answer(server, session):
    status, said = server.post("/v1/chat/completions", {**QUESTION, "session": session})
    assert status == 200, said
    return said["choices"][0]["message"]["content"]


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="winnow-survival-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


class Killed(Folder):
    def save_for_ever(self, server):
        """Saves two texts of different lengths alternately under one name."""
        with contextlib.suppress(Exception):  # until the server is killed
            while True:
                for name in ("short", "long"):
                    server.post(f"/v1/sessions/{name}/save", {"name": "kept"}, timeout=30)

    def unfinished(self):
        return [self.folder / name for name in self.files() if name.endswith(".tmp")]

    def stop_within_a_save(self, server):
        """Returns when the server is stopped (SIGSTOP) while a file is incomplete."""
        deadline = time.monotonic() + 60
        while True:
            self.assertLess(time.monotonic(), deadline, "no save was seen")
            if not self.unfinished():
                continue
            server.process.send_signal(signal.SIGSTOP)
            while pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                pass
            if self.unfinished():  # the save had not ended before the signal came
                return
            server.process.send_signal(signal.SIGCONT)

    def test_the_old_file_or_the_new_one(self):
        rng = random.Random(5)
        n_interrupted = 0
        right = {}
        for number in range(ROUNDS):
            with Server("--session-path", self.folder) as server:
                lengths = {make(server, "short", 6): "short", make(server, "long", 14): "long"}
                if not right:
                    for name in ("short", "long"):
                        server.post(f"/v1/sessions/{name}/fork", {"id": name + "2"})
                        right[name] = answer(server, name + "2")
                self.assertEqual(server.post("/v1/sessions/short/save", {"name": "kept"})[0], 200)
                saver = threading.Thread(target=self.save_for_ever, args=(server,))
                saver.start()
                if number % 2:
                    time.sleep(rng.random() * 0.2)
                else:
                    self.stop_within_a_save(server)
                server.process.send_signal(signal.SIGKILL)
                saver.join()
            left = self.unfinished()
            if number % 2 == 0:
                self.assertTrue(left)
            n_interrupted += len(left)
            for path in left:  # as if the server started an hour later
                os.utime(path, (0, time.time() - 3601))
            with Server("--session-path", self.folder) as server:
                self.assertEqual(self.unfinished(), [], "what a killed save left is removed")
                status, restored = server.post("/v1/sessions/again/restore", {"name": "kept"})
                self.assertEqual(status, 200, restored)
                self.assertIn(restored["n_tokens"], lengths)
                self.assertEqual(answer(server, "again"), right[lengths[restored["n_tokens"]]])
            (self.folder / "again.session").unlink(missing_ok=True)
        print(f"{ROUNDS} kills, {n_interrupted} of them within a save", flush=True)

    def test_a_save_that_may_be_of_another_replica(self):
        """Its file stays, for an hour."""
        other = self.folder / ".kept.session.1-0.tmp"
        other.write_bytes(b"winnow session")
        with Server("--session-path", self.folder):
            self.assertTrue(other.exists())


class FullDisk(Folder):
    """A failed write is one clear error; the previous file and the sessions are unchanged."""

    def check(self, server, full, free):
        length = make(server, "doc", 8)
        server.post("/v1/sessions/doc/fork", {"id": "first"})
        right = answer(server, "first")
        status, saved = server.post("/v1/sessions/doc/save", {"name": "kept"})
        self.assertEqual(status, 200, saved)
        before = (self.folder / "kept.session").read_bytes()
        make(server, "large", 60)
        full()
        status, failed = server.post("/v1/sessions/large/save", {"name": "kept"})
        self.assertGreaterEqual(status, 400, failed)
        self.assertIn("kept", failed["error"]["message"])
        self.assertEqual((self.folder / "kept.session").read_bytes(), before)
        self.assertFalse([name for name in self.files() if name.endswith(".tmp")], "no remains that fill the disk further")
        self.assertEqual(server.get("/health")[0], 200)
        status, restored = server.post("/v1/sessions/again/restore", {"name": "kept"})
        self.assertEqual((status, restored.get("n_tokens")), (200, length))
        self.assertEqual(answer(server, "again"), right)
        server.post("/v1/sessions/doc/fork", {"id": "second"})
        self.assertEqual(answer(server, "second"), right)
        free()
        self.assertEqual(server.post("/v1/sessions/large/save", {"name": "kept"})[0], 200)

    def test_a_small_file_system(self):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", self.folder], capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("a file system cannot be mounted here: " + mounted.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=True)
        filler = self.folder / "filler"

        def full():
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
        with Server("--session-path", self.folder) as server:
            self.check(server, full, filler.unlink)
            for name in ("large", "doc", "first", "second", "again"):
                server.request("DELETE", f"/v1/sessions/{name}")

    def test_a_limit_of_file_sizes(self):
        with Server("--session-path", self.folder) as server:
            limits = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)

            def limit(n_bytes):
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
            self.check(server, lambda: limit((self.folder / "kept.session").stat().st_size), lambda: limit(limits[0]))

    def test_a_full_disk_at_the_end(self):
        """SIGTERM saves named sessions. If that fails, the server logs it and still ends."""
        server = Server("--session-path", self.folder)
        make(server, "doc", 8)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        server.stop()
        self.assertNotEqual(server.process.returncode, -signal.SIGXFSZ, server.log)
        self.assertIn("doc", server.log)
        self.assertEqual(self.files(), [])


class ReadOnly(Folder):
    def test_a_folder_that_cannot_be_written(self):
        bound = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", self.folder], capture_output=True, text=True, check=False)
        if bound.returncode == 0:
            self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=True)
            subprocess.run(["mount", "-o", "remount,ro", self.folder], check=True)
        elif os.getuid() != 0:
            self.folder.chmod(0o555)
            self.addCleanup(self.folder.chmod, 0o755)
        else:
            self.skipTest("root writes everywhere, and a file system cannot be mounted here: " + bound.stderr.strip())
        with Server("--session-path", self.folder) as server:
            make(server, "doc", 2)
            status, failed = server.post("/v1/sessions/doc/save", {"name": "kept"})
            self.assertGreaterEqual(status, 400, failed)
            self.assertIn("kept", json.dumps(failed))
            self.assertTrue(answer(server, "doc") is not None)
            server.request("DELETE", "/v1/sessions/doc")

    def test_a_folder_that_is_gone(self):
        folder = self.folder / "sessions"
        folder.mkdir()
        with Server("--session-path", folder) as server:
            make(server, "doc", 2)
            folder.rmdir()
            status, failed = server.post("/v1/sessions/doc/save", {"name": "kept"})
            self.assertGreaterEqual(status, 400, failed)
            self.assertEqual(server.get("/health")[0], 200)
            server.request("DELETE", "/v1/sessions/doc")


if __name__ == "__main__":
    unittest.main()
