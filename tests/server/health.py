"""Measures how long /health takes while a server is busy."""

import contextlib
import multiprocessing
import os
import socket
import time

from harness import SANITIZED, read_answer

# The promise of docs/server.md (Limits and safety). Sanitizers take longer.
MAX_S = 2.0 if SANITIZED else 0.1  # of 99 %
MAX_ONCE_S = 10 * MAX_S            # of all
MAX_LATE = 2                       # later than MAX_S where 1 % would be fewer: other programs use the machine too


def percentile(times, share):
    return sorted(times)[int(share * (len(times) - 1))]


def describe(times):
    return (f"/health {len(times)} times, 99 % within {1e3 * percentile(times, 0.99):.1f} ms, "
            f"all within {1e3 * max(times):.1f} ms")


def is_in_time(times, factor=1):
    n_late = sum(took >= factor * MAX_S for took in times)
    return n_late <= max(MAX_LATE, len(times) // 100) and max(times) < factor * MAX_ONCE_S


class Watch:
    """Requests /health every `every_s` seconds from start() to stop(), on one connection or a new one each time. Runs in its own
    process, so that it shares no lock with the clients that keep the server busy."""

    def __init__(self, port, every_s=0.01, new_connections=False):
        self.port, self.every_s, self.new_connections = port, every_s, new_connections
        self.times = []

    def start(self):
        context = multiprocessing.get_context("fork")
        self._stop, self._results = context.Event(), context.Queue()
        self._process = context.Process(target=self._run, daemon=True)
        self._process.start()
        return self

    def stop(self):
        """Returns None, or what was wrong with a response."""
        self._stop.set()
        self.times, problem = self._results.get(timeout=60)
        self._process.join()
        return problem

    def _run(self):
        with contextlib.suppress(OSError):
            os.nice(-5)  # if allowed, so that the server is measured and not this process
        times, problem, client = [], None, None
        try:
            while not times or not self._stop.is_set():
                start = time.monotonic()
                client = client or socket.create_connection(("127.0.0.1", self.port), timeout=30)
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + (b"Connection: close\r\n" if self.new_connections else b"") + b"\r\n")
                status, _, body = read_answer(client)
                times.append(time.monotonic() - start)
                if status != 200:
                    problem = f"{status} {body[:200]}"
                    break
                if self.new_connections:
                    client.close()
                    client = None
                time.sleep(max(0, self.every_s - (times[-1] if self.new_connections else 0)))
        except OSError as error:
            problem = repr(error)
            times.append(time.monotonic() - start)
        finally:
            if client:
                client.close()
        self._results.put((times, problem))
