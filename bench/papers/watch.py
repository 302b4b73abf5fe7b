"""Measures the time of a command, and whether its memory grows."""
import pathlib
import subprocess
import time

INTERVAL_S = 2


def resident_bytes(pid):
    """The resident bytes of a process; 0 if it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), 0)


def watch(command):
    """(exit status, {seconds, resident_early_bytes after a tenth of the time, resident_late_bytes at the end})."""
    began, samples = time.monotonic(), []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while True:
            if size := resident_bytes(process.pid):
                samples.append(size)
            try:
                status = process.wait(INTERVAL_S)
                break
            except subprocess.TimeoutExpired:
                continue
    sizes = samples or [0]
    return status, {"seconds": time.monotonic() - began, "resident_early_bytes": sizes[len(sizes) // 10], "resident_late_bytes": sizes[-1]}
