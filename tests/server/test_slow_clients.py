"""Slow clients by slowhttptest (headers, bodies, reads) while wrk asks for answers and /health is looked at on new connections.
Skipped, with the reason, where the two (Debian packages) are not installed. WINNOW_SLOW_SECONDS: the length of each attack."""

import contextlib
import csv
import multiprocessing
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from harness import SANITIZED, Server, read_answer

SECONDS = int(os.environ.get("WINNOW_SLOW_SECONDS", 5))
CONNECTIONS = 1000
MAX_HEALTH_S = 0.1  # what /health may take at the 99th percentile
MAX_ONCE_S = 1.0    # one look, or the percentile of few: the machine may be busy
MIN_LOOKS = 200     # that make a percentile
LOOK_EVERY_S = 0.1
MISSING = [tool for tool in ("slowhttptest", "wrk") if shutil.which(tool) is None]
ATTACKS = {  # flags of slowhttptest, path
    "headers": (["-H", "-i", "1"], "/v1/completions"),
    "bodies": (["-B", "-i", "1", "-s", "8192"], "/v1/completions"),
    "reads": (["-X", "-k", "10", "-w", "10", "-y", "20", "-n", "1", "-z", "32"], "/page/app.js"),
}
ASK = """wrk.method = "POST"
wrk.body = '{"prompt": "Once upon a time", "n_predict": 4}'
"""


def watch_health(port, stop, results):
    """Times of GET /health, each on a new connection. A process of its own: no lock is shared."""
    with contextlib.suppress(OSError):
        os.nice(-5)  # so that what is measured is the server, where that is allowed
    times, problem = [], None
    while not times or not stop.is_set():
        start = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                status, _, body = read_answer(client)
        except OSError as error:
            status, body = None, repr(error).encode()
        times.append(time.monotonic() - start)
        if status != 200:
            problem = f"{status} {body[:200]}"
            break
        time.sleep(max(0, LOOK_EVERY_S - times[-1]))
    results.put((times, problem))


def percentile(times, share):
    return sorted(times)[int(share * (len(times) - 1))]


@unittest.skipIf(SANITIZED, "sanitizers make longer what is measured here")
@unittest.skipIf(MISSING, f"{' and '.join(MISSING)} not installed (Debian packages)")
class SlowClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="winnow-slow-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        model = cls.folder / "model.gguf"
        subprocess.run([os.environ["MAKE_TINY_MODEL"], model], check=True, capture_output=True)
        (cls.folder / "ask.lua").write_text(ASK)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        cls.addClassCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        cls.server = Server("-m", model, "-t", "1")
        cls.addClassCleanup(cls.server.stop)

    def n_files(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def attack(self, flags, path, seconds):
        """The most connections that were open at once. Those whose time has run out are opened again."""
        most, until = 0, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 1:
            subprocess.run(["slowhttptest", *flags, "-c", str(CONNECTIONS), "-r", "500", "-l", str(int(left)), "-p", "3",
                            "-g", "-o", "slow", "-u", self.server.url + path], cwd=self.folder, check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds + 60)
            with open(self.folder / "slow.csv", newline="") as file:
                most = max([most, *(int(row["Connected"]) for row in csv.DictReader(file))])
        return most

    def under(self, name, attack):
        """Prints a row of the table in docs/benchmarks/server.md."""
        before = self.n_files()
        context = multiprocessing.get_context("fork")
        stop, results = context.Event(), context.Queue()
        watcher = context.Process(target=watch_health, args=(self.server.port, stop, results))
        watcher.start()
        asking = subprocess.Popen(["wrk", "-t1", "-c4", f"-d{SECONDS}s", "--latency", "-s", self.folder / "ask.lua",
                                   self.server.url + "/completion"], stdout=subprocess.PIPE, text=True)
        try:
            connected = attack()
        finally:
            said = asking.communicate(timeout=SECONDS + 60)[0]
            stop.set()
            times, problem = results.get(timeout=60)
            watcher.join()
        answers = int(re.search(r"(\d+) requests in", said)[1])
        half, late = percentile(times, 0.5), percentile(times, 0.99)
        slow = dict(re.findall(r"(50|99)%\s+(\S+)", said))
        print(f"| {name} | {connected} | {len(times)} | {1e3 * half:.1f} | {1e3 * late:.1f} | {1e3 * max(times):.1f} | "
              f"{answers / SECONDS:.0f} | {slow['50']} | {slow['99']} | {os.getloadavg()[0]:.1f} |", flush=True)
        self.assertIsNone(problem)
        self.assertLess(late, MAX_HEALTH_S if len(times) >= MIN_LOOKS else MAX_ONCE_S)
        self.assertLess(max(times), MAX_ONCE_S)
        self.assertGreater(answers, 0)
        self.assertNotIn("Socket errors", said)
        self.assertNotIn("Non-2xx", said)
        until = time.monotonic() + 15
        while self.n_files() > before and time.monotonic() < until:
            time.sleep(0.1)
        self.assertLessEqual(self.n_files(), before, "connections that nobody holds any more")
        return connected

    def test_nobody(self):
        self.under("none", lambda: time.sleep(SECONDS) or 0)

    def test_slow_clients(self):
        for name, (flags, path) in ATTACKS.items():
            with self.subTest(name):
                connected = self.under(name, lambda: self.attack(flags, path, SECONDS))
                self.assertGreater(connected, CONNECTIONS / 2)  # on a busy machine slowhttptest opens them slowly


if __name__ == "__main__":
    unittest.main()
