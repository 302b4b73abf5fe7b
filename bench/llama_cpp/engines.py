"""Runs winnow, llama.cpp and ik_llama.cpp, each in its own process, and describes the machine."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from make_shapes import ROOT, make

HERE = Path(__file__).resolve().parent


def machine():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return f"{model}, {os.cpu_count()} cores visible, {memory:.0f} GiB, Linux {platform.release()}"


class Engines:
    def __init__(self, winnow, models, threads, real_time):
        self.binary, self.models, self.threads, self.real_time = winnow, models, threads, real_time
        self.about = {"threads": threads}

    def model(self, shape, kind):
        return make(self.models, shape, kind)

    def _run(self, command):
        """stdout of a command; if the command fails, ends the program with its error output."""
        command = [str(word) for word in (["chrt", "--fifo", "1"] if self.real_time else []) + command]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def winnow(self, model, *flags):
        """The rows of `winnow bench`."""
        return json.loads(self._run([self.binary, "bench", "-m", model, "-t", self.threads, "-o", "json", *flags]))

    def llama(self, model, *flags):
        """The results of llama_bench.py."""
        found = json.loads(self._run([sys.executable, HERE / "llama_bench.py", "-m", model, "-t", self.threads, *flags]))
        self.about.update({f"llama_cpp_{k}": found[k] for k in ("version", "system_info") if k in found})
        return found

    def ik_llama(self, model, *flags):
        """The results of ik_bench.py."""
        subprocess.run([HERE / "ik_llama.sh"], check=True)
        return json.loads(self._run([sys.executable, HERE / "ik_bench.py", "-m", model, "-t", self.threads, *flags]))

    def winnow_load(self, model):
        """(seconds from start to end of a process that generates one token, its peak resident MiB)"""
        command = [self.binary, "run", "-m", model, "-p", "one two three four", "-n", 1, "-c", 512, "-t", self.threads, "--json"]
        started = time.perf_counter()
        found = json.loads(self._run(command))
        return time.perf_counter() - started, found["peak_rss_bytes"] / 2**20

    def bandwidth(self):
        """GB/s at which `threads` threads read memory: the access pattern with the best median of three
        runs, because the maximum of a single run may come from a quiet moment."""
        runs = []
        for _ in range(3):
            text = self._run([Path(self.binary).parent / "winnow_bandwidth_bench", self.threads, 512])
            rows = [line.split("|")[3:-1] for line in text.splitlines() if line.startswith(("| 4 KiB", "| 2 MiB"))]
            runs.append([float(cell) for row in rows for cell in row])
        return max(statistics.median(of_way) for of_way in zip(*runs))

    def version(self):
        words = subprocess.run([self.binary, "--version"], capture_output=True, text=True).stdout.strip().splitlines()
        commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
        return f"{words[0] if words else 'winnow'}, commit {commit.stdout.strip() or 'unknown'}"
