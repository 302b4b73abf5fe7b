#!/usr/bin/env python3
"""Checks prose: references must resolve, and lines of Markdown prose have at most 120 characters.

    tools/check_docs.py          prints what breaks a rule, exit code 1 if anything does
    tools/check_docs.py --wrap   wraps the prose of all Markdown files first

References are links in Markdown files, and paths like docs/kv-cache.md#quality or src/base/half.h
in comments and documents. The file must exist in the repository; an anchor must be one of its
headings. Logs of measurements (docs/benchmarks/log) name files as they were.

Tables, code, headings and lines with a link may be longer than 120 characters, as may CHANGELOG.md
(one fact per line) and docs/benchmarks (written by programs).
"""
import pathlib
import re
import subprocess
import sys
import textwrap

WIDTH = 120
ROOT = pathlib.Path(__file__).resolve().parent.parent
LOG = ROOT / "docs/benchmarks/log"
CODE = {".cc", ".h", ".py", ".cmake", ".txt", ".sh", ".in"}

LINK = re.compile(r"\]\(([^()\s]+)\)")
# A Markdown file named in text, with or without folder and anchor: kv-cache.md, docs/kv-cache.md#quality.
NAMED = re.compile(r"(?<![\w/.*{<-])((?:[\w.-]+/)*[\w-]+\.md)(#[\w-]+)?")
# A source file named by its path from the root of the repository: src/base/half.h.
SOURCE = re.compile(r"(?<![\w/.*{<$-])((?:src|apps|include|tests|tools|bench|examples|cmake|deploy)/(?:[\w.-]+/)*"
                    r"[\w-]+\.(?:cc|h|py|sh|cmake|js|css|html))\b")
# A placeholder for file names: docs/methods/NAME.md.
PLACEHOLDER = re.compile(r"[/_](?!README\.md$)[A-Z]+\.[a-z]+$")
# Citations of sections in documents outside the repository ("methods.md 0.7").
SECTION = re.compile(r"\b[\w-]+\.md,? (?:section )?\d")


def tracked():
    out = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
                         capture_output=True, text=True, check=True)
    return [ROOT / line for line in out.stdout.splitlines() if (ROOT / line).is_file()]


def anchors(path, known={}):
    """The anchors that GitHub makes of a Markdown file's headings."""
    if path not in known:
        names = set()
        fenced = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                fenced = not fenced
            match = None if fenced else re.match(r"#+ +(.*)", line)
            if match:
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).strip().lower()
                names.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
        known[path] = names
    return known[path]


def check_target(path, number, target, base, problems):
    if re.match(r"[a-z]+:", target):
        return
    name, _, anchor = target.partition("#")
    file = (base / name).resolve() if name else path
    if not file.exists():
        problems.append(f"{path.relative_to(ROOT)}:{number}: {target}: no such file")
    elif anchor and file.suffix == ".md" and anchor not in anchors(file):
        problems.append(f"{path.relative_to(ROOT)}:{number}: {target}: no such heading")


def check_references(path, problems):
    is_code = path.suffix in CODE and path.name != "check_docs.py"
    if path.suffix != ".md" and not is_code:
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if LOG not in path.parents:
            for match in SOURCE.finditer(line):
                if not PLACEHOLDER.search(match.group(1)):
                    check_target(path, number, match.group(1), ROOT, problems)
        if not is_code:
            for match in LINK.finditer(line):
                check_target(path, number, match.group(1), path.parent, problems)
            continue
        if SECTION.search(line):
            problems.append(f"{path.relative_to(ROOT)}:{number}: names a section by number; name a heading: "
                            "docs/FILE.md#heading")
        for match in NAMED.finditer(line):
            name = match.group(1)
            if name.startswith("docs/") and not PLACEHOLDER.search(name):
                check_target(path, number, name + (match.group(2) or ""), ROOT, problems)


def prose(lines):
    """Numbers of the lines that are prose and can be wrapped."""
    fenced = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
            continue
        if fenced or line.startswith(("|", "#", "    ", "\t", ">", "<", "!", "---")) or not line.strip():
            continue
        yield number


def check_width(path, problems):
    lines = path.read_text(encoding="utf-8").splitlines()
    for number in prose(lines):
        line = lines[number]
        if len(line) > WIDTH and not LINK.search(line) and " " in line[:WIDTH]:
            problems.append(f"{path.relative_to(ROOT)}:{number + 1}: {len(line)} characters, at most {WIDTH} "
                            "(tools/check_docs.py --wrap)")


def wrap(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    is_prose = set(prose(lines))
    out, paragraph = [], []

    def flush():
        if not paragraph:
            return
        if max(len(line) for line in paragraph) <= WIDTH:
            out.extend(paragraph)
        else:
            first = paragraph[0]
            marker = re.match(r"\s*(?:[-*]|\d+\.) +", first)
            indent = " " * len(marker.group(0)) if marker else re.match(r"\s*", first).group(0)
            text = " ".join(line.strip() for line in paragraph)
            start = marker.group(0) if marker else indent
            out.extend(textwrap.wrap(text[len(start.strip()):].strip() if marker else text, WIDTH, initial_indent=start,
                                     subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
        paragraph.clear()

    for number, line in enumerate(lines):
        if number not in is_prose:
            flush()
            out.append(line)
            continue
        if re.match(r"\s*(?:[-*]|\d+\.) +", line) or line.endswith(("  ", "\\")):
            flush()
        paragraph.append(line)
    flush()
    path.write_text("\n".join(out) + "\n", encoding="utf-8")


def main():
    files = tracked()
    documents = [path for path in files if path.suffix == ".md" and not path.is_relative_to(ROOT / "docs/benchmarks")
                 and path.name != "CHANGELOG.md"]
    if "--wrap" in sys.argv[1:]:
        for path in documents:
            wrap(path)
    problems = []
    for path in files:
        if path.suffix == ".md" or path.suffix in CODE:
            check_references(path, problems)
    for path in documents:
        check_width(path, problems)
    print("\n".join(problems[:100]))
    if problems:
        print(f"check_docs: {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
