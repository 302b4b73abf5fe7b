"""Shared by the tests of the page: a running server and its page in a browser."""

import tempfile
import time
import unittest

from browser import Browser, missing
from harness import SANITIZED, ServerTest


@unittest.skipIf(missing(), missing())
@unittest.skipIf(SANITIZED, "the browser's patience is too short for a build with sanitizers")
class PageTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        profile = tempfile.TemporaryDirectory(prefix="winnow-browser-", ignore_cleanup_errors=True)
        cls.addClassCleanup(profile.cleanup)
        cls.browser = Browser(profile.name)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.console()

    def open(self, width=1400, height=900, **more):
        self.browser.open(self.server.url + "/", width, height, **more)

    def assert_sound(self):
        """No overflow, no console errors, no requests to other hosts, no elements injected by a document."""
        browser = self.browser
        self.assertLessEqual(*browser.js("return [document.documentElement.scrollWidth, innerWidth]"))
        self.assertEqual(browser.console(), [])
        self.assertTrue(browser.js("return performance.getEntriesByType('resource').every((e) => e.name.startsWith(location.origin))"))
        self.assertEqual(browser.js("return document.images.length"), 1)
        self.assertIsNone(browser.js("return window.hacked ?? null"))

    def server_sessions(self):
        return [session["id"] for session in self.server.get("/v1/sessions")[1]["data"]]

    def wait_for_no_sessions(self):
        end = time.monotonic() + 60
        while self.server_sessions() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.server_sessions(), [])
