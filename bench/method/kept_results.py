"""Results of the final evaluation that outlast a machine: compressed, in bench/method/results, and committed."""
import hashlib
import json
import lzma
import os
import pathlib
import sys

from parts import FROZEN, document_folder, part_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from binary import read_build  # noqa: E402

KEPT = FROZEN.with_name("results")


def frozen_build():
    return json.loads(FROZEN.read_text())["build"]


def check_build(found, where):
    if found != frozen_build():
        sys.exit(f"{where}: found results of {found}, expected those of {frozen_build()}, which `build` makes")


def check_builds(output, where):
    """Of a part's output; `winnow eval` takes over results of other commits of its version, and says so in each of them."""
    for result in (result for sample in output["samples"] for result in sample["results"]):
        check_build(result.get("winnow", output["winnow"]), where)


def check_binary(args):
    if (found := read_build(args.winnow)) != frozen_build():
        sys.exit(f"{args.winnow} is {found}, expected {frozen_build()}, which `build` makes")


def write(path, data):
    """Whole or not at all."""
    partial = path.with_name(path.name + ".tmp")
    partial.write_bytes(data)
    os.replace(partial, path)


def parse_lines(data, where):
    """{what was measured: its line} of a results file. Lines that are incomplete are left out."""
    found = {}
    for line in data.splitlines():
        try:
            result = json.loads(line)
        except ValueError:
            continue
        check_build(result["winnow"], where)
        found[tuple(result.get(name) for name in ("fingerprint", "sample", "method", "budget", "cache_types"))] = line
    return found


def join_lines(lines):
    return b"".join(line + b"\n" for line in lines.values())


def compress(data):
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def read_kept(name):
    path = KEPT / (name + ".xz")
    return parse_lines(lzma.decompress(path.read_bytes()), path) if path.exists() else {}


def restore(args, all_parts):
    """Adds what was kept to the results, and replaces what models wrote by what was kept. Requires: nothing else writes to them."""
    for kept in sorted(KEPT.glob("continuations-*.json.xz")):
        write(document_folder(args) / kept.stem, lzma.decompress(kept.read_bytes()))
    for path in (part_file(args, *part, "jsonl") for part in all_parts):
        kept = read_kept(path.name)
        there = parse_lines(path.read_bytes(), path) if path.exists() else {}
        if kept.keys() - there.keys():
            write(path, join_lines(kept | there))


def keep(args, all_parts):
    """Adds the results so far to what was kept, also while they are being written. Returns how many are kept."""
    KEPT.mkdir(exist_ok=True)
    folder = document_folder(args)
    documents = [*sorted(folder.glob("*/*.jsonl")), *sorted(folder.glob("generated-*.jsonl")), folder / "text.jsonl"]
    hashes = kept_hashes() | {str(path.relative_to(folder)): file_hash(path.read_bytes()) for path in documents}
    write(KEPT / "documents.json", (json.dumps(hashes, indent=1) + "\n").encode())
    for path in folder.glob("continuations-*.json"):
        write(KEPT / (path.name + ".xz"), compress(path.read_bytes()))
    n_results = 0
    for path in (part_file(args, *part, "jsonl") for part in all_parts):
        kept = read_kept(path.name)
        found = kept | (parse_lines(path.read_bytes(), path) if path.exists() else {})
        if found.keys() - kept.keys():
            write(KEPT / (path.name + ".xz"), compress(join_lines(found)))
        n_results += len(found)
    return n_results


# -- documents ----------------------------------------------------------------------------------------------------------


def file_hash(data):
    return hashlib.sha256(data).hexdigest()


def kept_hashes():
    """{file of a document folder: its SHA-256} of the results that were kept."""
    path = KEPT / "documents.json"
    return json.loads(path.read_text()) if path.exists() else {}


def check_document(name, data):
    """Exits if kept results are of another document of this name."""
    if file_hash(data) != kept_hashes().get(name, file_hash(data)):
        sys.exit(f"{name} is not the file that the results in {KEPT} are of. Move its folder away: `documents` draws it again, and `run` takes texts "
                 "that models wrote, which can differ between CPUs, from what was kept")  # fmt: skip


def check_documents(args):
    for name in kept_hashes():
        path = document_folder(args) / name
        if path.exists():
            check_document(name, path.read_bytes())
