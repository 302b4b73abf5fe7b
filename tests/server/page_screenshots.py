"""Makes the pictures of the page in docs/pictures. Needs what test_page needs, and desktop fonts. On Debian:

    apt-get install chromium chromium-driver fonts-inter-variable fonts-noto-core fonts-noto-color-emoji pngquant && tests/server/venv.sh
    WINNOW=build/release/winnow python3 tests/server/page_screenshots.py [FOLDER]
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from browser import Browser
from harness import ROOT, Server

QUESTIONS = ["What is the birthday of the old bridge?", "What is the secret code of the red lantern?"]


def rest():
    time.sleep(0.5)  # a frame or two after the last event


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    with Server() as server, tempfile.TemporaryDirectory(prefix="winnow-browser-", ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)

        def shot(name):
            rest()
            browser.js("document.activeElement?.blur()")
            rest()
            file = folder / f"page-{name}.png"
            browser.screenshot(file)
            if shutil.which("pngquant"):  # reduces the size to a third
                subprocess.run(["pngquant", "--quality=85-99", "--speed=1", "--strip", "--force", "--output", file, file], check=True)

        try:
            for scheme in ("light", "dark"):
                for width, height, scale in ((1400, 880, 1), (400, 860, 1.5)):
                    size = "desktop" if width > 600 else "phone"
                    browser.open(server.url + "/", width, height, scheme=scheme, scale=scale)
                    browser.read_example()
                    for question in QUESTIONS:
                        browser.ask(question)
                    if scheme == "light" and size == "desktop":
                        shot("desktop-light")
                    # A smaller budget: the page reads the text again and repeats the last question.
                    browser.slide(5)
                    browser.wait("document.querySelector('.answer.kept:last-child h3') && "
                                 "[...document.querySelectorAll('.answer.kept h3')].at(-1).textContent.startsWith('10')")
                    browser.idle()
                    if size == "phone":
                        if scheme == "light":
                            shot("phone-light")
                            continue
                        browser.tab("picture")
                    browser.click("#heads-toggle")
                    browser.wait("document.querySelectorAll('.heads .head').length > 0")
                    if size == "desktop" and scheme == "light":
                        browser.js("document.querySelectorAll('.heads .head')[21].click()")
                        shot("heads-light")
                    elif scheme == "dark":
                        shot(f"{size}-dark")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
