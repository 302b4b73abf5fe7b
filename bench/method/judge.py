#!/usr/bin/env python3
"""The judgement of `winnow` against published methods: first on development documents, then on documents that are drawn when nothing can be
changed any more.

    python3 bench/method/judge.py run --phase development
    python3 bench/method/judge.py freeze                     # what the development documents say, into frozen.json: commit it
    python3 bench/method/judge.py documents                  # the judgement's documents: their seed is the SHA-256 of frozen.json
    python3 bench/method/judge.py run --phase judgement      # hours; goes on where it was interrupted
    python3 bench/method/judge.py tables --phase judgement --out docs/method

Tracks: `hidden` (three questions come after the document was compressed), `seen` (one question, known when the prompt is compressed), `text` (KL
divergence of 1,024 tokens after 1,024 compressed ones), `generation` (KL divergence of 512 tokens that the full cache wrote after 512
compressed ones) and `streams` (nats per token of 2,048 tokens that come one by one). Every cell gets a share of the full f16 cache's bytes, lists
included; in streams it is a limit that holds at every token, and lists of 2 to 6 per cent come to it. Differences are paired by document; Holm's
correction is over all of them (orderings.py of bench/study has the tests). Every part is one `winnow eval` command and a file of results in --data.
"""
import argparse
import collections
import functools
import hashlib
import json
import math
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "bench/study"))
from orderings import chance, half_width, holm, table  # noqa: E402
import protocol  # noqa: E402
from protocol import MODELS, STORAGES, TRACKS  # noqa: E402

FROZEN = HERE / "frozen.json"
def documents_of(args):
    return args.data / args.phase


def winnow(args, *words, **more):
    return subprocess.run([str(w) for w in (args.winnow, *words)], check=True, cwd=ROOT, **more)


def generated(args, model):
    """A file of texts, each the beginning of a window and what the full cache writes after it."""
    path = documents_of(args) / f"generated-{model}.jsonl"
    if not path.exists():
        lines = []
        for i, line in enumerate((documents_of(args) / "text.jsonl").read_text().splitlines()):
            window = json.loads(line)["text"]
            ids = json.loads(winnow(args, "tokenize", "-m", MODELS[model], "-f", "-", "--json", "--no-bos", input=window.encode(),
                                    stdout=subprocess.PIPE).stdout)["tokens"]
            prompt = window[:len(window) * protocol.PROMPT // len(ids)].rpartition(" ")[0]
            written = winnow(args, "run", "-m", MODELS[model], "-q", "-f", "-", "-n", protocol.WRITTEN + 64, "--temp", "0.8", "--seed", i,
                             "--ignore-eos", "--no-display-prompt", "-t", args.threads, input=prompt.encode(), stdout=subprocess.PIPE).stdout.decode(errors="replace")
            lines.append(json.dumps({"text": prompt + written}) + "\n")
        path.write_text("".join(lines))
    return path


def arguments(args, model, track):
    data = documents_of(args)
    if TRACKS[track] is protocol.ANSWERS:
        found = ["ruler", "--raw", "--data", data / (track + "-needle" if model in protocol.NEEDLES_ONLY else track), "-n", "24"]
        return found + (["--hide-question"] if track == "hidden" else [])
    if track == "text":
        return ["kld", "--data", data / "text.jsonl", "--lengths", protocol.WINDOW, "--chunks", "1"]
    if TRACKS[track] is protocol.STREAM:
        return ["perplexity", "--protocol", "sliding", "--data", data / "text.jsonl", "--lengths", protocol.WINDOW, "--chunks", "1"]
    return ["kld", "--data", generated(args, model), "--lengths", protocol.PROMPT + protocol.WRITTEN, "--chunks", "1"]


@functools.cache
def whole_bytes(winnow_file, model):
    """Of the full f16 cache of a window."""
    shown = subprocess.run([winnow_file, "inspect", "-m", MODELS[model], "--json"], check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout
    return json.loads(shown)["cache_bytes_per_1k_tokens"]["f16"] * protocol.WINDOW // 1000


def budgets(args, model, track, shares):
    if TRACKS[track] is not protocol.STREAM:
        return ["--equal-bytes", ",".join(shares)]
    return ["--kv-memory", ",".join(str(int(float(share) * whole_bytes(args.winnow, model))) for share in shares)]


def share_of(args, model, result):
    """The share that a result was asked for; "" of the full cache."""
    kind, _, number = result["budget"].rpartition(" ")
    if kind != "memory":
        return number
    return min(protocol.STREAM.shares, key=lambda share: abs(float(share) * whole_bytes(args.winnow, model) - int(number)))


def parts(args, model, track):
    """(name, methods, types of the cache, shares) of the commands of a phase: all at once, or, judged, each in its storage."""
    if args.phase == "development":
        of = TRACKS[track]
        methods = [of.own, *(m for m in of.ingredients if has_profile(model) or "profile" not in m), *of.rivals]
        found = [("all", args.methods or methods, STORAGES, of.tried)]
        saturated = saturated_methods(args) if of is protocol.ANSWERS else []
        return found + [("saturated", saturated, STORAGES, protocol.SMALLER)] * bool(saturated)
    frozen = json.loads(FROZEN.read_text())
    shares_of = collections.defaultdict(list)  # (method, storage) -> shares
    for share, chosen in frozen["storage"][track].items():
        for method, storage in chosen.items():
            judged = method not in frozen["left out"][track] and (has_profile(model) or "profile" not in method)
            if judged and (not args.methods or method in args.methods):
                shares_of[method, storage].append(share)
    methods_of = collections.defaultdict(list)  # (storage, shares) -> methods
    for (method, storage), shares in shares_of.items():
        methods_of[storage, tuple(shares)].append(method)
    return [("-".join([storage.replace("/", "-"), *shares]), methods, [storage], shares)
            for (storage, shares), methods in methods_of.items()]  # fmt: skip


def has_profile(model):
    return model == "bundled" or (ROOT / (MODELS[model] + ".profile")).exists()


def part_file(args, name):
    return documents_of(args) / name


def command_of(args, track, model, storage, methods, types, shares):
    """A part's name and its command, which goes on where it was interrupted."""
    name = f"{model}-{track}-{storage}"
    part = part_file(args, name)
    budget = budgets(args, model, track, shares) if shares else []
    return name, [args.winnow, "eval", *arguments(args, model, track), "-m", MODELS[model], "--kv-method", ",".join(methods), *budget, "--full-type", "f16",
                  "--cache-types", ",".join(types), "-t", args.threads, "--results", f"{part}.jsonl", "--json", f"{part}.json"]  # fmt: skip


def start(args, name, command):
    with open(part_file(args, f"{name}.log"), "w") as log:
        # In a session of its own: what is typed here interrupts this script, which tells it once.
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=log, cwd=ROOT, start_new_session=True)


def need(path, command):
    if not path.exists():
        sys.exit(f"{path} is missing: `{command}` makes it")


def check_frozen(args):
    """Stops unless everything is as it was frozen."""
    need(FROZEN, "freeze")
    need(documents_of(args) / "made.json", "documents")
    frozen = json.loads(FROZEN.read_text())
    if parameters(args) != frozen["parameters"]:
        sys.exit(f"{args.winnow}: its parameters of winnow are not those of {FROZEN}")
    made = json.loads((documents_of(args) / "made.json").read_text())
    if made["seed"] != hashlib.sha256(FROZEN.read_bytes()).hexdigest():
        sys.exit(f"{documents_of(args)}: its documents were drawn for another {FROZEN.name}; `documents` draws them anew")


def run(args):
    if args.phase == "judgement":
        check_frozen(args)
    until = time.monotonic() + 60 * args.minutes if args.minutes else math.inf
    begun = set()
    running = {}  # processes and what they are

    def next_part():
        """Asked anew each time: what is done decides what there is to do."""
        for track in args.tracks:
            for model in args.models:
                for part in parts(args, model, track):
                    if (track, model, part[0]) not in begun:
                        begun.add((track, model, part[0]))
                        return command_of(args, track, model, *part)
        return None

    try:
        while True:
            while len(running) < args.processes and (following := next_part()):
                print(f"{time.strftime('%H:%M:%S')} {following[0]} begins", flush=True)
                running[start(args, *following)] = following[0]
            if not running:
                return
            for process in [process for process in running if process.poll() is not None]:
                name = running.pop(process)
                if process.returncode:
                    sys.exit(f"{name}: exit status {process.returncode}; {part_file(args, name + '.log')} says why")
                print(f"{time.strftime('%H:%M:%S')} {name} is done", flush=True)
            if time.monotonic() > until:
                print("the time is over; the same command goes on from here")
                return
            time.sleep(0.5)
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait()


def measured(args, track, model, parts_read=None):
    """{(method, share, storage): {document: score}} of what has been run; the full f16 cache is ("full", "", "f16"). What takes more than its share
    is left out: the least that a method keeps can be more than that. parts_read: names of parts; without it all of the phase."""
    score = TRACKS[track].score
    found = collections.defaultdict(dict)
    for name in parts_read or [name for name, *_ in parts(args, model, track)]:
        path = part_file(args, f"{model}-{track}-{name}.json")
        if not path.exists():
            continue
        for sample in json.loads(path.read_text())["samples"]:
            for result in sample["results"]:
                if score not in result.get("scores", {}):
                    continue
                share = share_of(args, model, result)
                counted = "cache_bytes" if TRACKS[track] is protocol.STREAM else "cache_bytes_with_lists"
                fits = not share or result[counted] <= 1.005 * float(share) * result["cache_bytes_full_f16"]
                if fits:
                    found[result["method"], share, result["cache_types"]][sample["sample"]] = result["scores"][score]
    return found


def whole_cells(cells):
    """Without those in which documents are missing."""
    n = max(map(len, cells.values()), default=0)
    return {way: scores for way, scores in cells.items() if len(scores) == n}


# -- what the development documents say -----------------------------------------------------------------------------------


def mean_scores(args, tracks, shares, part):
    """{(method, storage): mean scores of the cells of some tracks, in the order of tracks, models, shares}; ("full", storage) too."""
    cells = [(track, share, whole_cells(measured(args, track, model, [part]))) for track in tracks for model in MODELS for share in shares]
    ways = {(method, storage) for _, _, found in cells for method, _, storage in found}
    means = collections.defaultdict(list)
    for track, share, found in cells:
        nothing = 0.0 if TRACKS[track].sign > 0 else math.inf
        for method, storage in ways:
            scores = found.get((method, "" if method == "full" else share, storage), {})
            means[method, storage].append(statistics.mean(scores.values()) if scores else nothing)
    return means


def is_finished(args, track, model, part, shares):
    path = part_file(args, f"{model}-{track}-{part}.json")
    if not path.exists():
        return False
    found = json.loads(path.read_text())
    return found["finished"] and set(shares) <= {share_of(args, model, result) for result in found["samples"][0]["results"]}


def saturated_methods(args):
    """Once all questions were asked: at the development's share nearly all storages of these answer as the full cache does."""
    questions, of = protocol.alike("hidden"), TRACKS["hidden"]
    if not all(is_finished(args, track, model, "all", of.tried) for track in questions for model in MODELS):
        return []
    means = mean_scores(args, questions, of.tried, "all")
    enough = protocol.SATURATED * statistics.mean(means["full", "f16"])
    return [m for m in [of.own, *of.rivals] if sum(statistics.mean(means[m, s]) >= enough for s in STORAGES if (m, s) in means) > 1]


def best_storage(means, method, sign):
    """Of the best mean; of what is to be small the geometric one, so that every model counts. Over the cells in which all storages fit that fit in any."""
    cells = {kind: means[method, kind] for kind in STORAGES if (method, kind) in means and min(means[method, kind]) < math.inf}
    whole = [i for i in range(len(next(iter(cells.values()), []))) if all(0 < sign * cells[kind][i] or 0 < cells[kind][i] < math.inf for kind in cells)]
    if not whole:
        return STORAGES[-1]
    if sign > 0:
        return max(cells, key=lambda kind: statistics.mean(cells[kind][i] for i in whole))
    return min(cells, key=lambda kind: statistics.geometric_mean(cells[kind][i] for i in whole))


def storages_of(args, track, saturated):
    """{share: {method: storage}} of a track; the same in those that are alike."""
    of, tracks, found = TRACKS[track], protocol.alike(track), {}
    smaller = mean_scores(args, tracks, protocol.SMALLER, "saturated") if of is protocol.ANSWERS else {}
    for share in of.shares:
        tried = next((t for t in of.tried if float(t) <= float(share)), of.tried[-1])
        means = mean_scores(args, tracks, [tried], "all")
        chosen = {method: best_storage(smaller if smaller and method in saturated else means, method, of.sign) for method in [of.own, *of.rivals]}
        # Ingredients are judged by leaving them out, everything else as it is.
        found[share] = chosen | {method: chosen[of.own] for method in of.ingredients}
    return found


def hopeless(args, track, storages):
    """The rivals that are left out of a track."""
    of, share = TRACKS[track], protocol.HOPELESS_SHARE
    means = mean_scores(args, [track], [share], "all")
    best = means[of.own, storages[share][of.own]]
    scores = {rival: means[rival, storages[share][rival]] for rival in of.rivals}
    nearest = max(of.rivals, key=lambda rival: of.sign * statistics.mean(scores[rival]))

    def is_worse(a, b):
        return a > protocol.HOPELESS * b if of.sign > 0 else protocol.HOPELESS * a < b < math.inf

    return [rival for rival in of.rivals if rival != nearest and all(is_worse(a, b) for a, b in zip(best, scores[rival]))]


def freeze(args):
    """Each method's best storage at each share, and who is left out of a track."""
    args.phase = "development"
    missing = [f"{model}-{track}-{name}" for track in TRACKS for model in MODELS for name, _, _, shares in parts(args, model, track)
               if not is_finished(args, track, model, name, shares)]  # fmt: skip
    if missing:
        sys.exit(f"not finished: {', '.join(missing)}; `run --phase development` goes on")
    saturated = saturated_methods(args)
    storage = {track: storages_of(args, track, saturated) for track in TRACKS}
    left_out = {track: hopeless(args, track, storage[track]) for track in TRACKS}
    FROZEN.write_text(json.dumps({
        "storage": storage, "saturated": saturated, "left out": left_out,
        "documents of a task, windows": protocol.DOCUMENTS["judgement"], "books": protocol.BOOKS["judgement"], "parameters": parameters(args),
    }, indent=1) + "\n")  # fmt: skip
    print(FROZEN.read_text())


def parameters(args):
    """winnow's, with their defaults, as it shows them."""
    return winnow(args, "methods", "winnow", stdout=subprocess.PIPE).stdout.decode().partition("Parameters:\n")[2].splitlines()


def documents(args):
    args.phase = "judgement"
    need(FROZEN, "freeze")
    seed = hashlib.sha256(FROZEN.read_bytes()).hexdigest()
    subprocess.run([args.python, HERE / "documents.py", "--out", documents_of(args), "--seed", seed, "--books", *protocol.BOOKS["judgement"], "--documents",
                    str(protocol.DOCUMENTS["judgement"])], check=True)  # fmt: skip


# -- tables -------------------------------------------------------------------------------------------------------------


def mean_and_error(scores, scale, digits):
    values = list(scores.values())
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{scale * statistics.mean(values):.{digits}f} ± {scale * error:.{digits}f}"


def tables(args):
    """Means of every cell, and winnow's paired differences from every rival and without each of its ingredients."""
    data = {(track, model): whole_cells(measured(args, track, model)) for track in args.tracks for model in args.models}
    text, pairs = [], []  # pairs: (track, model, share, other method, differences in winnow's favour)
    for (track, model), cells in data.items():
        if not cells:
            continue
        of = TRACKS[track]
        full = cells.get(("full", "", "f16"), {})
        unit = of.unit + ("" if of is protocol.DIVERGENCE else f"; full cache {mean_and_error(full, of.scale, of.digits)}")
        ways = list(dict.fromkeys((method, storage) for method, share, storage in cells if share))
        shares = [s for s in of.shares if any(share == s for _, share, _ in cells)]
        rows = [[f"`{method}`", storage, *(mean_and_error(cells[method, s, storage], of.scale, of.digits) if (method, s, storage) in cells else ""
                                           for s in shares)] for method, storage in ways]  # fmt: skip
        text.append(f"### {model}, {track}\n\n{len(full)} documents; {unit}.\n\n"
                    + table(["method", "cache", *(f"1/{round(1 / float(s))}" for s in shares)], rows))
        kinds = [storage for method, storage in ways if method == of.own]
        for share in shares:
            for method, storage in ways:
                for kind in kinds if args.phase == "judgement" else [storage]:
                    if method != of.own and (of.own, share, kind) in cells and (method, share, storage) in cells:
                        a, b = cells[of.own, share, kind], cells[method, share, storage]
                        pairs.append((track, model, share, f"{method} {storage}", [of.sign * (a[k] - b[k]) for k in a if k in b]))
    significant = holm([chance(pair[-1]) for pair in pairs])
    rows = []
    for (track, model, share, other, differences), sure in zip(pairs, significant):
        scale, digits = TRACKS[track].scale, TRACKS[track].digits
        mean = statistics.mean(differences)
        word = "open" if not sure else "better" if mean > 0 else "**worse**"
        rows.append([track, model, f"1/{round(1 / float(share))}", f"`{other}`", f"{scale * mean:+.{digits}f} ± {scale * half_width(differences):.{digits}f}", word])
    text.append("### winnow against each\n\nPaired differences, positive where `winnow` is better, with the half width of their 95 % interval; Holm's "
                "correction over all rows.\n\n" + table(["track", "model", "bytes", "other", "difference", "winnow is"], rows))
    done = "\n".join(text)
    print(done)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{args.phase}.md").write_text(done)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "freeze", "documents", "tables"])
    parser.add_argument("--phase", choices=["development", "judgement"], default="judgement")
    parser.add_argument("--tracks", nargs="+", choices=TRACKS, default=list(TRACKS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", help="only these")
    parser.add_argument("--winnow", type=pathlib.Path, default=ROOT / "build/release/winnow")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / "build/train/venv/bin/python", help="with numpy, for `documents`")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/judge")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the tables")
    parser.add_argument("--processes", type=int, default=2, help="parts at a time")
    parser.add_argument("--threads", type=int, default=1, help="of each: small models gain less by threads than by processes")
    parser.add_argument("--minutes", type=float, help="of `run`; without it until all is done")
    args = parser.parse_args()
    args.winnow, args.data = args.winnow.resolve(), args.data.resolve()
    {"run": run, "freeze": freeze, "documents": documents, "tables": tables}[args.what](args)


if __name__ == "__main__":
    main()
