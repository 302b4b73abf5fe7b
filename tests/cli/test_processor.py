"""The processor is checked before its features are used (docs/decisions/0020-sse4-baseline.md)."""

import os
import platform
import shutil
import subprocess
import unittest

from harness import WINNOW


@unittest.skipUnless(platform.machine() == "x86_64", "skipped: not x86-64")
@unittest.skipUnless(shutil.which("qemu-x86_64"), "skipped: no qemu-x86_64 (Debian: qemu-user)")
@unittest.skipIf(os.environ.get("WINNOW_SANITIZE"), "skipped: sanitizers do not run in qemu")
class OldProcessors(unittest.TestCase):
    def version_on(self, processor):
        return subprocess.run(["qemu-x86_64", "-cpu", processor, WINNOW, "--version"], capture_output=True, text=True, timeout=120)

    def test_without_aes_or_sse4_the_message_names_the_flag(self):
        for processor in ("kvm64", "Nehalem"):
            done = self.version_on(processor)
            self.assertEqual(done.returncode, 1, processor)
            self.assertIn("-march=x86-64", done.stderr)

    def test_with_sse4_alone_it_runs(self):
        done = self.version_on("Westmere")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SSE4", done.stdout)


if __name__ == "__main__":
    unittest.main()
