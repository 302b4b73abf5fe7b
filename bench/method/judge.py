#!/usr/bin/env python3
"""The final evaluation of `winnow` against published methods: first on development documents, then on documents that are drawn only after everything
else is frozen.

    python3 bench/method/judge.py run --phase development
    python3 bench/method/judge.py freeze                     # writes the choices made on development documents to frozen.json: commit it
    python3 bench/method/judge.py build                      # the binary of frozen.json's commit
    python3 bench/method/judge.py documents                  # draws the final documents; their seed is the SHA-256 of frozen.json
    python3 bench/method/judge.py run --phase judgement      # takes hours; resumes where it was interrupted
    python3 bench/method/judge.py keep                       # compresses its results so far into results/: commit them; `run` starts from there
    python3 bench/method/judge.py tables --out docs/method

Tracks: `hidden` (three questions are asked after the document was compressed), `seen` (one question, known when the prompt is compressed), `text` (KL
divergence of 1,024 tokens after 1,024 compressed ones), `generation` (KL divergence of 512 tokens that were generated with the full cache, after 512
compressed ones) and `streams` (nats per token of 2,048 tokens that arrive one by one). Every cell gets a share of the full f16 cache's bytes: after
the prompt and with lists; in streams as a limit at every token, without lists. protocol.py defines the rest. Every part is one `winnow eval` command
and a results file in --data.
"""
import argparse
import fcntl
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import protocol  # noqa: E402
import kept_results  # noqa: E402
from parts import FROZEN, ROOT, part_command, document_folder, mean_scores, part_file, parts, part_output, saturated_methods, unfinished, winnow  # noqa: E402
from protocol import MODELS, STORAGES, TRACKS  # noqa: E402
from tables import make_tables  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def sha256(path):
    return kept_results.file_hash(path.read_bytes())


def what_counts():
    """SHA-256 of what a figure depends on, besides the commit that is built and the documents."""
    return {"protocol.py": sha256(HERE / "protocol.py")} | {name: sha256(ROOT / file) for name, file in MODELS.items() if file != name}


def need(path, command):
    if not path.exists():
        sys.exit(f"{path} is missing: `{command}` makes it")


def check_frozen(args):
    """Exits unless everything equals the frozen state."""
    need(FROZEN, "freeze")
    need(document_folder(args) / "made.json", "documents")
    found = what_counts()
    for name, known in json.loads(FROZEN.read_text())["sha256"].items():
        if found.get(name) != known:
            sys.exit(f"{name} is not the one that {FROZEN} was made with ({known[:12]}...)")
    if json.loads((document_folder(args) / "made.json").read_text())["seed"] != sha256(FROZEN):
        sys.exit(f"{document_folder(args)}: its documents were drawn for another {FROZEN.name}; `documents` draws them anew")
    kept_results.check_documents(args)


def build(args):
    """The frozen commit, into --data."""
    need(FROZEN, "freeze")
    commit = json.loads(FROZEN.read_text())["build"].partition("+")[2]
    source = args.data / "source"
    if not source.exists():
        subprocess.run(["git", "clone", "--quiet", ROOT, source], check=True)
    for command in (["git", "fetch", "--quiet", ROOT, "HEAD"], ["git", "-c", "advice.detachedHead=false", "checkout", "--quiet", commit],
                    ["git", "config", "core.abbrev", str(len(commit))], ["cmake", "--preset", "release", "-DWINNOW_TESTS=OFF"], ["cmake", "--build", "--preset", "release", "--target", "winnow"]):
        subprocess.run(command, check=True, cwd=source)
    shutil.copy2(source / "build/release/winnow", args.data / "winnow")
    args.winnow = args.data / "winnow"
    kept_results.check_binary(args)


def all_parts(args):
    return [(track, model, part) for track in TRACKS for model in MODELS for part in parts(args, model, track)]


def keep(args):
    args.phase = "judgement"
    check_frozen(args)
    print(f"{kept_results.keep(args, all_parts(args))} results in {kept_results.KEPT}")


# -- running ------------------------------------------------------------------------------------------------------------


def lock(folder):
    """Exits if another run writes to the folder. The lock lasts as long as the returned file."""
    file = open(folder / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{folder}: another run is under way there; wait for its end, or stop it")
    return file


def end(number, frame):
    raise SystemExit(128 + number)


def give_way():
    """Only processor time that no other program wants. A session is a scheduling group of its own (sched(7), autogroup), whose weight counts first."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    autogroup = pathlib.Path("/proc/self/autogroup")
    while autogroup.exists():
        try:
            autogroup.write_text("19")
            return
        except BlockingIOError:  # another session's weight changed just now: without privileges one change is allowed every tenth of a second
            time.sleep(0.1)


def run(args):
    if args.phase == "judgement":
        check_frozen(args)
    need(document_folder(args) / "made.json", "documents" if args.phase == "judgement" else "documents.py --seed development")
    locked = lock(document_folder(args))  # noqa: F841
    check = {}
    if args.phase == "judgement":
        kept_results.check_binary(args)
        kept_results.restore(args, all_parts(args))
        check = {"check": kept_results.check_document}
    # Stop the parts when this script is stopped, even if its parent process ignores SIGINT.
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    until = time.monotonic() + 60 * args.minutes if args.minutes else math.inf
    begun = set()
    running = {}  # process -> its log file

    def next_part():
        """The next part to run. Computed anew each time, because the finished parts determine further parts."""
        for track in args.tracks:
            for model in args.models:
                for part in parts(args, model, track):
                    if (track, model, part.name) not in begun:
                        begun.add((track, model, part.name))
                        return part_file(args, track, model, part, "log"), part_command(args, track, model, part, **check)
        return None

    try:
        while True:
            while len(running) < args.processes and (following := next_part()):
                path, command = following
                print(f"{time.strftime('%H:%M:%S')} {path.stem} begins", flush=True)
                with open(path, "w") as log:
                    # In its own session: Ctrl-C interrupts only this script, which then sends a single SIGINT to the part.
                    running[subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=log, cwd=ROOT, start_new_session=True,
                                             preexec_fn=give_way if args.idle else None)] = path
            if not running:
                return
            for process in [process for process in running if process.poll() is not None]:
                path = running.pop(process)
                if process.returncode:
                    sys.exit(f"{path.stem}: exit status {process.returncode}; {path} says why")
                if args.phase == "judgement":
                    kept_results.check_builds(json.loads(path.with_suffix(".json").read_text()), path.stem)
                print(f"{time.strftime('%H:%M:%S')} {path.stem} is done", flush=True)
            if time.monotonic() > until:
                print("the time is over; the same command goes on from here")
                return
            time.sleep(0.5)
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait()


# -- choices from the development documents -----------------------------------------------------------------------------


def best_storage(means, method, sign):
    """The storage with the best mean over the cells in which all usable storages fit (usable: fits in some cell). For scores that should be small the
    mean is geometric, so that every model counts."""
    cells = {kind: means[method, kind] for kind in STORAGES if any(mean is not None for mean in means.get((method, kind), []))}
    common = [i for i in range(len(next(iter(cells.values()), []))) if all(line[i] is not None for line in cells.values())]
    if not common:
        return STORAGES[-1]
    if sign > 0:
        return max(cells, key=lambda kind: statistics.mean(cells[kind][i] for i in common))
    return min(cells, key=lambda kind: statistics.geometric_mean(cells[kind][i] for i in common))


def choose_storages(args, track, saturated):
    """{share: {method: storage}} of a track; similar tracks get the same storages."""
    setup, tracks, found = TRACKS[track], protocol.alike(track), {}
    smaller = mean_scores(args, tracks, protocol.SMALLER, "saturated") if setup is protocol.ANSWERS and saturated else {}
    for share in setup.shares:
        means = mean_scores(args, tracks, [protocol.tried_for(setup, share)], "all")
        chosen = {m: best_storage(smaller if smaller and m in saturated else means, m, setup.sign) for m in [setup.own, *setup.rivals]}
        # An ingredient is evaluated by leaving it out and changing nothing else, so it uses the same storage.
        found[share] = chosen | {method: chosen[setup.own] for method in setup.ingredients}
    return found


def hopeless(setup, means, storages):
    """The rivals that are left out. means: the scores of one track at one share; storages: those of all methods there."""
    best = means[setup.own, storages[setup.own]]
    scores = {rival: means.get((rival, storages[rival]), [None]) for rival in setup.rivals}

    def mean(rival):
        known = [score for score in scores[rival] if score is not None]
        return setup.sign * statistics.mean(known) if known else -math.inf

    def is_worse(a, b):
        if a is None or b is None:
            return False
        return a > protocol.HOPELESS * b if setup.sign > 0 else protocol.HOPELESS * a < b

    nearest = max(setup.rivals, key=mean)
    return [rival for rival in setup.rivals if rival != nearest and all(is_worse(a, b) for a, b in zip(best, scores[rival]))]


def freeze(args):
    """Writes each method's best storage at each share, and the rivals left out there, to frozen.json."""
    args.phase = "development"
    if missing := unfinished(args):
        sys.exit(f"not finished: {', '.join(missing)}; `run --phase development` goes on")
    outputs = [part_output(args, *part) for part in all_parts(args)]
    builds = {result.get("winnow", output["winnow"]) for output in outputs for sample in output["samples"] for result in sample["results"]}
    if len(builds) > 1 or "dirty" in str(builds):
        sys.exit(f"found results of {', '.join(sorted(builds))}, expected those of one commit: `run --phase development` computes what differs")
    saturated = saturated_methods(args)
    storage = {track: choose_storages(args, track, saturated) for track in TRACKS}
    left_out = {track: {share: hopeless(setup, mean_scores(args, [track], [protocol.tried_for(setup, share)], "all"), storage[track][share])
                        for share in setup.shares} for track, setup in TRACKS.items()}  # fmt: skip
    parameters = winnow(args, "methods", "winnow", stdout=subprocess.PIPE).stdout.decode().partition("Parameters:\n")[2].splitlines()
    FROZEN.write_text(json.dumps({
        "build": builds.pop(), "sha256": what_counts(), "parameters": parameters, "storage": storage, "saturated": saturated,
        "left out": left_out, "documents of a task, windows": protocol.DOCUMENTS["judgement"], "books": protocol.BOOKS["judgement"],
    }, indent=1) + "\n")  # fmt: skip
    if args.winnow != args.data / "winnow":
        shutil.copy2(args.winnow, args.data / "winnow")
    print(FROZEN.read_text())


def documents(args):
    args.phase = "judgement"
    need(FROZEN, "freeze")
    if not args.python.exists():
        sys.exit(f"{args.python} is missing: --python names one with numpy; tools/train_model/README.md makes this one")
    folder = document_folder(args)
    if folder.exists():  # documents, and results, of another frozen.json, or a beginning
        if (folder / "made.json").exists() and json.loads((folder / "made.json").read_text())["seed"] == sha256(FROZEN):
            sys.exit(f"{folder}: has these documents")
        folder.rename(folder.with_name(f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"))
    subprocess.run([args.python, HERE / "documents.py", "--out", folder, "--seed", sha256(FROZEN), "--books", *protocol.BOOKS["judgement"],
                    "--documents", str(protocol.DOCUMENTS["judgement"])], check=True)  # fmt: skip


def tables(args):
    if args.phase == "judgement":
        check_frozen(args)
    if (missing := unfinished(args)) and not args.unfinished:
        sys.exit(f"not finished: {', '.join(missing)}; `run --phase {args.phase}` goes on, --unfinished writes what is there")
    for part in all_parts(args):
        if args.phase == "judgement" and (found := part_output(args, *part)):
            kept_results.check_builds(found, part_file(args, *part, "json"))
    done = make_tables(args)
    print(done)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{args.phase}.md").write_text(done)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "freeze", "build", "documents", "keep", "tables"])
    parser.add_argument("--phase", choices=["development", "judgement"], default="judgement")
    parser.add_argument("--tracks", nargs="+", choices=TRACKS, default=list(TRACKS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--winnow", type=pathlib.Path, help="the binary; of the judgement the one that `build` or `freeze` left in --data [build/release/winnow]")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / "build/train/venv/bin/python", help="with numpy, for `documents`")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/judge")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the tables")
    parser.add_argument("--unfinished", action="store_true", help="tables of what is there")
    parser.add_argument("--processes", type=int, default=2, help="parts at a time")
    parser.add_argument("--threads", type=int, default=1, help="of each: small models gain less by threads than by processes")
    parser.add_argument("--idle", action="store_true", help="`run` gives way to every other program")
    parser.add_argument("--minutes", type=float, help="of `run`; without it until all is done")
    args = parser.parse_args()
    args.data = args.data.resolve()
    if not args.winnow:
        kept = args.data / "winnow"
        args.winnow = kept if args.phase == "judgement" and args.what != "freeze" and kept.exists() else ROOT / "build/release/winnow"
    args.winnow = args.winnow.resolve()
    {"run": run, "freeze": freeze, "build": build, "documents": documents, "keep": keep, "tables": tables}[args.what](args)


if __name__ == "__main__":
    main()
