"""Slow clients from slowhttptest (headers, bodies, reads), while wrk sends requests and /health is polled on new connections.
Skipped, with the reason, if the two Debian packages are not installed. WINNOW_SLOW_SECONDS: the length of each attack."""

import csv
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import time
import unittest

import health
from harness import SANITIZED, Server

SECONDS = int(os.environ.get("WINNOW_SLOW_SECONDS", 5))
CONNECTIONS = 1000
LOOK_EVERY_S = 0.1
MISSING = [tool for tool in ("slowhttptest", "wrk") if shutil.which(tool) is None]
ATTACKS = {  # name: flags of slowhttptest, path
    "headers": (["-H", "-i", "1"], "/v1/completions"),
    "bodies": (["-B", "-i", "1", "-s", "8192"], "/v1/completions"),
    "reads": (["-X", "-k", "10", "-w", "10", "-y", "20", "-n", "1", "-z", "32"], "/page/app.js"),
}
ASK = """wrk.method = "POST"
wrk.body = '{"prompt": "Once upon a time", "n_predict": 4}'
"""


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
        """Returns the maximum of open connections. Connections that time out are opened again."""
        most, until = 0, time.monotonic() + seconds
        while (left := until - time.monotonic()) > 1:
            subprocess.run(["slowhttptest", *flags, "-c", str(CONNECTIONS), "-r", "500", "-l", str(int(left)), "-p", "3",
                            "-g", "-o", "slow", "-u", self.server.url + path], cwd=self.folder, check=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds + 60)
            with open(self.folder / "slow.csv", newline="") as file:
                most = max([most, *(int(row["Connected"]) for row in csv.DictReader(file))])
        return most

    def under(self, name, attack):
        """Measures under an attack; prints a row of the table in docs/benchmarks/server.md."""
        before = self.n_files()
        watch = health.Watch(self.server.port, LOOK_EVERY_S, new_connections=True).start()
        asking = subprocess.Popen(["wrk", "-t1", "-c4", f"-d{SECONDS}s", "--latency", "-s", self.folder / "ask.lua",
                                   self.server.url + "/completion"], stdout=subprocess.PIPE, text=True)
        try:
            connected = attack()
        finally:
            said = asking.communicate(timeout=SECONDS + 60)[0]
            problem = watch.stop()
        answers = int(re.search(r"(\d+) requests in", said)[1])
        times = watch.times
        half, late = health.percentile(times, 0.5), health.percentile(times, 0.99)
        slow = dict(re.findall(r"(50|99)%\s+(\S+)", said))
        print(f"| {name} | {connected} | {len(times)} | {1e3 * half:.1f} | {1e3 * late:.1f} | {1e3 * max(times):.1f} | "
              f"{answers / SECONDS:.0f} | {slow['50']} | {slow['99']} | {os.getloadavg()[0]:.1f} |", flush=True)
        self.assertIsNone(problem)
        self.assertTrue(health.is_in_time(times), health.describe(times))
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
