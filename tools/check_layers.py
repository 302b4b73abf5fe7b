#!/usr/bin/env python3
"""Checks that every room of src/ includes only rooms it declares, that rooms depend only on rooms
below them, and that no message in a room names a command's flag: messages name options, and the
commands translate these to flags.

Reads the DEPENDS lists of the winnow_room() calls; exits 1 and names each line that breaks a rule.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
SOCKETS = ("boost/", "openssl/", "sys/socket.h", "netinet/")
SIMD = ("hwy/", "immintrin.h", "x86intrin.h", "arm_neon.h")
MAX_PUBLIC_HEADERS = 8
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
FLAG = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]+|-[a-z](?= [A-Z]{2}))")  # "--lengths", "-f FILE"
FOREIGN_COMMAND = "pip install "


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc"))


def flags_named(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for text in [] if line.lstrip().startswith("//") else STRING.findall(line):
            flag = FLAG.search(text)
            if flag and not text.startswith(FOREIGN_COMMAND):
                yield number, flag.group(0)


def read_rooms(problems):
    """Room -> declared rooms, in the order of src/CMakeLists.txt (from the lowest up)."""
    text = (ROOT / "src/CMakeLists.txt").read_text(encoding="utf-8")
    order = re.search(r"foreach\(room ([^)]*)\)", text).group(1).split()
    rooms = {}
    for name in order:
        text = (ROOT / "src" / name / "CMakeLists.txt").read_text(encoding="utf-8")
        call = re.search(r"winnow_room\(NAME\s+" + name + r"\b(.*?)\)", text, re.S)
        if not call:
            problems.append(f"src/{name}/CMakeLists.txt: no winnow_room(NAME {name} ...)")
            continue
        words = call.group(1).split()
        declared = []
        if "DEPENDS" in words:
            for word in words[words.index("DEPENDS") + 1:]:
                if word.isupper() and word != word.lower():
                    break
                declared.append(word)
        for other in declared:
            if other not in rooms:
                problems.append(f"src/{name}/CMakeLists.txt: depends on {other}, which is not a room below it")
        rooms[name] = declared
    for folder in sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir()):
        if folder not in order:
            problems.append(f"src/{folder}: a folder that src/CMakeLists.txt does not list")
    return rooms


def main():
    problems = []
    rooms = read_rooms(problems)
    for room, declared in rooms.items():
        for path in sources(ROOT / "src" / room):
            where = path.relative_to(ROOT)
            if not path.stem.endswith("_test"):
                problems += [f"{where}:{number}: a flag of a command in a message ({flag})"
                             for number, flag in flags_named(path)]
            in_simd = path.is_relative_to(ROOT / "src/kernels/cpu")
            for number, kind, name in includes(path):
                first = name.split("/")[0]
                if kind == '"' and first in rooms and first != room and first not in declared:
                    problems.append(f"{where}:{number}: {room} does not declare {first} ({name})")
                if name.startswith(SIMD) and not in_simd:
                    problems.append(f"{where}:{number}: SIMD stays in src/kernels/cpu ({name})")
                if name.startswith(SOCKETS) and not path.is_relative_to(ROOT / "src/server/http"):
                    problems.append(f"{where}:{number}: sockets stay in src/server/http ({name})")
                if name.startswith("kernels/cpu/") and room != "kernels":
                    problems.append(f"{where}:{number}: kernels/cpu is private to kernels ({name})")
                settings = name == "winnow/compression.h"  # shared by API, command line and server
                if name.startswith("winnow/") and room not in ("api", "base") and not settings:
                    problems.append(f"{where}:{number}: the public API is seen by api only ({name})")
    tour = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/tour.md").read_text(encoding="utf-8"), re.M)
    if tour != list(rooms):
        problems.append(f"docs/tour.md: its table lists the rooms {', '.join(tour)}; src/CMakeLists.txt {', '.join(rooms)}")
    public = sources(ROOT / "include/winnow")
    if len(public) > MAX_PUBLIC_HEADERS:
        problems.append(f"include/winnow: {len(public)} headers, at most {MAX_PUBLIC_HEADERS}")
    for folder in ("include/winnow", "examples", "python"):
        for path in sources(ROOT / folder) if (ROOT / folder).exists() else []:
            for number, kind, name in includes(path):
                if name.split("/")[0] in rooms or (kind == '"' and not name.startswith("winnow/")):
                    problems.append(f"{path.relative_to(ROOT)}:{number}: only <winnow/...> here ({name})")
    for problem in problems:
        print(problem)
    print(f"layers: {len(rooms)} rooms, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
