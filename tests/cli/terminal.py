"""Runs the binary on a pseudo-terminal: sends keys and reads what is shown."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from harness import WINNOW

PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"
UP, LEFT, CTRL_C, CTRL_D, TAB = b"\x1b[A", b"\x1b[D", b"\x03", b"\x04", b"\t"


class Terminal:
    """winnow on a terminal of its own."""

    def __init__(self, *arguments, columns=100, rows=40, env=None, timeout=120):
        self.leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(follower)
        self.follower = follower  # stays open, so that output can be read after the program ended

        def controlling():
            os.setsid()
            fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([WINNOW, *map(str, arguments)], stdin=follower, stdout=follower, stderr=follower,
                                        env={**os.environ, "TERM": "xterm", **(env or {})}, preexec_fn=controlling)
        self.timeout = timeout
        self.raw = b""
        self.seen = 0  # bytes of raw consumed by wait_for

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.leader)
        os.close(self.follower)

    def send(self, keys):
        """Writes all keys while reading what the program shows."""
        keys = keys if isinstance(keys, bytes) else keys.encode()
        deadline = time.monotonic() + self.timeout
        while keys:
            assert time.monotonic() < deadline, "the program does not read"
            readable, writable, _ = select.select([self.leader], [self.leader], [], 0.1)
            if readable:
                self._read()
            if writable:
                keys = keys[os.write(self.leader, keys[:512]):]

    def _read(self):
        try:
            self.raw += os.read(self.leader, 65536)
        except OSError:  # the other end is closed
            return False
        return True

    def wait_for(self, pattern):
        """Waits until a regular expression (bytes) matches new output; returns the output up to
        the match."""
        deadline = time.monotonic() + self.timeout
        while True:
            found = re.search(pattern, self.raw[self.seen:])
            if found:
                part = self.raw[self.seen:self.seen + found.end()]
                self.seen += found.end()
                return part
            assert time.monotonic() < deadline, f"{pattern!r} was not shown: {self.raw[self.seen:][-2000:]!r}"
            if select.select([self.leader], [], [], 0.1)[0]:
                self._read()

    def end(self):
        """Waits for the program; returns its exit code."""
        deadline = time.monotonic() + self.timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.raw[-2000:]!r}"
            if select.select([self.leader], [], [], 0.1)[0]:
                self._read()
        while select.select([self.leader], [], [], 0)[0] and self._read():
            pass
        return self.process.returncode

    @property
    def text(self):
        """Everything shown, without escape sequences for cursor and colour."""
        return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]", b"", self.raw).decode("utf-8", "replace")
