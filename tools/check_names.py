#!/usr/bin/env python3
"""Finds names in the code that were replaced by the field's terms: tools/old_names.txt lists them.

Prints each line that uses one and its replacement; exits 1 if there is any. Skips strings and
comments.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tools/old_names.txt"
# A raw string, a string, a character, or a comment to the end of the line.
NOT_CODE = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*', re.S)


def rules():
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            old, instead = line.split(None, 1)
            core = re.escape(old.strip("*"))
            before = r"\b\w+" if old.startswith("*") else r"\b"
            after = r"\w*" if old.endswith("*") else "" if old.endswith("(") else r"\b"
            yield re.compile(before + core + after), instead


def main():
    out = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.cc", "*.h"],
                         capture_output=True, text=True, check=True)
    known = list(rules())
    n_found = 0
    for name in out.stdout.splitlines():
        path = ROOT / name
        if not path.is_file():
            continue
        # Replace what is removed by its line feeds, so that line numbers stay right.
        code = NOT_CODE.sub(lambda m: "\n" * m.group(0).count("\n"), path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.splitlines(), 1):
            for pattern, instead in known:
                match = pattern.search(line)
                if match:
                    n_found += 1
                    print(f"{name}:{number}: {match.group(0)}: write {instead}")
    print(f"names: {n_found} old ones")
    sys.exit(1 if n_found else 0)


if __name__ == "__main__":
    main()
