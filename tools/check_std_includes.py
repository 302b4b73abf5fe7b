#!/usr/bin/env python3
"""Checks that a name of the standard library is used only where its header is included.

Builds with precompiled headers compile without the #include; the preset dev and other compilers do
not. A header counts if the file includes it, directly or through the project's headers. Exits 1
and names each line that lacks one.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The headers that cmake/WinnowRoom.cmake precompiles, and the names that require each.
NAMES = {
    "algorithm": "all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if is_sorted lower_bound max "
                 "max_element min min_element minmax_element none_of nth_element partial_sort remove_if reverse rotate "
                 "sort stable_sort transform unique upper_bound",
    "array": "array",
    "chrono": "chrono",
    "cmath": "ceil cos exp floor fma isfinite isinf isnan log lround pow round sin sqrt",
    "functional": "function",
    "limits": "numeric_limits",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr",
    "numeric": "accumulate gcd inner_product iota reduce",
    "optional": "optional",
    "span": "span",
    "sstream": "istringstream ostringstream stringstream",
    "string": "string to_string",
    "string_view": "string_view",
    "utility": "exchange forward move pair swap",
    "variant": "variant",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
# Headers that also provide another's names, by the standard or in every library.
PAIRS = ("algorithm array functional map memory optional set span string string_view tuple unordered_map variant vector")
ALSO = {header: {"utility"} for header in PAIRS.split()}
ALSO["span"] |= {"array"}
ALSO["string"] |= {"string_view"}
for stream in ("filesystem", "fstream", "iostream", "sstream"):
    ALSO[stream] = {"string", "string_view", "utility"}
ALSO["regex"] = {"string", "string_view", "utility", "vector"}
ALSO["cinttypes"] = {"cstdint"}
INTEGER = re.compile(r"(?<![\w:])(?:std::)?u?int(?:8|16|32|64)_t\b")


class Source:
    def __init__(self, path, files):
        text = (ROOT / path).read_text(encoding="utf-8")
        self.standard = set(re.findall(r"^#include <(\w+)>", text, re.M))
        folders = [path.parent, *map(pathlib.PurePath, ("", "src", "include", "apps", "tests/conformance"))]
        self.included = []
        for name in re.findall(r'^#include ["<]([\w./-]+\.h)[">]', text, re.M):
            self.included += [folder / name for folder in folders if folder / name in files][:1]
        code = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', re.sub(r"//.*", "", text))
        self.used = {}  # header: name and line of the first use
        uses = [(match.start(), match[1], HEADER_OF.get(match[1])) for match in re.finditer(r"\bstd::(\w+)", code)]
        uses += [(match.start(), match[0], "cstdint") for match in INTEGER.finditer(code)]
        for at, name, header in sorted(uses):
            if header and header not in self.used:
                self.used[header] = (name, code.count("\n", 0, at) + 1)


def main():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cc"],
                            check=True, capture_output=True, text=True).stdout.split()
    listed = [path for path in listed if not path.startswith("tools/train_model/")]  # parts of one source
    files = {pathlib.PurePath(path) for path in listed if (ROOT / path).exists()}
    sources = {path: Source(path, files) for path in files}

    problems = []
    for path in sorted(files):
        seen, to_see, headers = set(), [path], set()
        while to_see:
            file = to_see.pop()
            if file not in seen:
                seen.add(file)
                headers |= sources[file].standard
                to_see += sources[file].included
        headers |= {also for header in headers for also in ALSO.get(header, ())}
        for header, (name, line) in sources[path].used.items():
            if header not in headers:
                problems.append(f"{path}:{line}: {name} without #include <{header}>")
    for problem in problems:
        print(problem)
    print(f"includes: {len(files)} files, {len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
