"""A headless Chromium on the page of a server, for the tests of the page and page_screenshots. Needs chromium, chromium-driver and selenium
(`tools/install_deps.sh --ci` brings them)."""

import base64
import importlib.util
import os
import pathlib
import shutil
import time


def missing():
    """Why no browser can be started; empty: one can."""
    if not importlib.util.find_spec("selenium"):
        return "Python's selenium is not installed (tests/server/venv.sh)"
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"{program} is not installed (apt-get install chromium chromium-driver)"
    return ""


class Browser:
    """One window. It waits for conditions in the page, never for a fixed time."""

    def __init__(self, profile):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
                     "--font-render-hinting=none", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium refuses to run as root with it
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))

    def close(self):
        self.driver.quit()

    def open(self, url, width=1400, height=900, scheme="light", reduced=True, scale=1):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.cdp("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced else "no-preference"}])
        self.driver.get(url)

    def cdp(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition, timeout=120):
        """Waits until the JavaScript expression is true and returns its value."""
        end = time.monotonic() + timeout
        while True:
            value = self.js(f"return {condition}")
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"after {timeout} s still not: {condition}; the page says: " +
                                     self.js("return document.body.innerText").strip()[:1500])
            time.sleep(0.05)

    def find(self, selector):
        from selenium.webdriver.common.by import By
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0])?.textContent ?? null", selector)

    def click(self, selector):
        self.find(selector).click()

    def fill(self, selector, value):
        """Sets a field as pasting does. Typing would take minutes for long texts and cannot enter lone surrogates."""
        self.js("const f = document.querySelector(arguments[0]); f.value = arguments[1];"
                "f.dispatchEvent(new Event('input', { bubbles: true }));", selector, value)

    def slide(self, value):
        self.fill("#budget", str(value))

    def choose(self, selector, value):
        self.js("const f = document.querySelector(arguments[0]); f.value = arguments[1];"
                "f.dispatchEvent(new Event('change', { bubbles: true }));", selector, value)

    def tab(self, name):
        """Opens the chat or the picture, which are tabs on small screens."""
        if self.js("return innerWidth < 600"):
            self.click(f"#tab-{name}")

    def console(self):
        """Returns the errors of the console since the last call."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]

    def screenshot(self, path):
        data = self.cdp("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    # Actions on the page, for tests and screenshots.

    def ready(self):
        self.wait("!document.querySelector('#example').disabled")

    def read_example(self):
        self.ready()
        self.click("#example")
        self.wait("document.querySelector('#reading').hidden && !document.querySelector('#chips').hidden")
        self.wait("document.querySelector('#share').textContent.includes('%')")

    def read(self, text):
        self.ready()
        self.fill("#paste", text)
        self.click("#read")
        self.wait("document.querySelector('#reading').hidden && document.querySelector('#share').textContent.includes('%')")

    def ask(self, question):
        self.fill("#question", question)
        self.click("#send")
        self.idle()

    def idle(self):
        self.wait("document.querySelector('#stop').hidden && document.querySelector('#reading').hidden && !document.querySelector('.waits')")

    def answers(self, key):
        return self.js("return [...document.querySelectorAll(`.answer.${arguments[0]} > .text`)].map((e) => e.textContent)", key)
