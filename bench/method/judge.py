#!/usr/bin/env python3
"""The judgement of `winnow` against published methods: first on development documents, then on documents that are drawn when nothing can be
changed any more.

    python3 bench/method/judge.py run --phase development
    python3 bench/method/judge.py freeze                     # what the development documents say, into frozen.json: commit it
    python3 bench/method/judge.py documents                  # the judgement's documents: their seed is the SHA-256 of frozen.json
    python3 bench/method/judge.py run --phase judgement      # hours; goes on where it was interrupted
    python3 bench/method/judge.py tables --phase judgement --out docs/method

Tracks: `hidden` (three questions come after the document was compressed), `seen` (one question, known when the prompt is compressed), `text` (KL
divergence of 1,024 tokens after 1,024 compressed ones) and `generation` (KL divergence of 512 tokens that the full cache wrote after 512
compressed ones). Every cell gets a share of the full f16 cache's bytes, lists included. Differences are paired by document; Holm's correction is
over all of them (orderings.py of bench/study has the tests). Every part is one `winnow eval` command and a file of results in --data.
"""
import argparse
import collections
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

FROZEN = HERE / "frozen.json"
MODELS = {"bundled": "bundled", "bed-q": "models/beds/winnow-bed-q-Q8_0.gguf", "bed-l": "models/beds/winnow-bed-l-Q8_0.gguf"}
NEEDLES_ONLY = {"bundled"}  # with the full cache it answers no other task of these to 90 %
BOOKS = {"development": ["mary-shelley_frankenstein", "thomas-hardy_tess-of-the-durbervilles"],
         "judgement": ["jane-austen_emma", "joseph-conrad_nostromo", "jules-verne_twenty-thousand-leagues-under-the-seas_f-p-walter"]}  # fmt: skip
DOCUMENTS = {"development": 10, "judgement": 100}  # of a task; three times as many where there is one task; windows of text
RIVALS = ("kvzip kvzip:plus=true expected-attention attention-matching defensivekv:layer=true compactor lagkv keydiff triattention rkv caote criticalkv "
          "snapkv cake adakv pyramidkv h2o tova streaming treekv d2o:total=true hbw ems").split()
INGREDIENTS = ["winnow:" + change for change in
               ("allocation=uniform", "allocation=top-k", "allocation=profile", "queries=window", "rest=0", "refit=false")]  # fmt: skip
STORAGES = ["f16", "q8_0", "q8_0/q4_0"]
QUESTIONS, DIVERGENCES = ["hidden", "seen"], ["text", "generation"]
SHARES = ["0.5", "0.25", "0.125", "0.0625", "0.03125"]  # of the judgement
# Of the development: a method is judged in the storage that is best at the first of these that is not above its share, or at the last.
TRIED = {"hidden": ["0.0625"], "seen": ["0.0625"], "text": ["0.25", "0.0625"], "generation": ["0.25", "0.0625"]}
# Methods that reach this share of the full cache's score in several storages get the one that is best at SMALLER.
SATURATED, SMALLER = 0.95, ["0.03125"]
SCORES = {"hidden": ("score", 1), "seen": ("score", 1), "text": ("kld", -1), "generation": ("kld", -1)}  # -1: less is better
PROMPT, WRITTEN = 512, 512  # tokens of the track `generation`
# A rival is not judged in a track in which winnow's development score is more than so many times better in every cell; the best of them always is.
HOPELESS = 2


def documents_of(args):
    return args.data / args.phase


def winnow(args, *words, **more):
    return subprocess.run([str(w) for w in (args.winnow, *words)], check=True, **more)


def generated(args, model):
    """A file of texts, each the beginning of a window and what the full cache writes after it."""
    path = documents_of(args) / f"generated-{model}.jsonl"
    if not path.exists():
        lines = []
        for i, line in enumerate((documents_of(args) / "text.jsonl").read_text().splitlines()):
            window = json.loads(line)["text"]
            ids = json.loads(winnow(args, "tokenize", "-m", MODELS[model], "-f", "-", "--json", "--no-bos", input=window.encode(),
                                    stdout=subprocess.PIPE).stdout)["tokens"]
            prompt = window[:len(window) * PROMPT // len(ids)].rpartition(" ")[0]
            written = winnow(args, "run", "-m", MODELS[model], "-q", "-f", "-", "-n", WRITTEN + 64, "--temp", "0.8", "--seed", i,
                             "--ignore-eos", "--no-display-prompt", "-t", args.threads, input=prompt.encode(), stdout=subprocess.PIPE).stdout.decode(errors="replace")
            lines.append(json.dumps({"text": prompt + written}) + "\n")
        path.write_text("".join(lines))
    return path


def arguments(args, model, track):
    data = documents_of(args)
    if track in QUESTIONS:
        found = ["ruler", "--raw", "--data", data / (track + "-needle" if model in NEEDLES_ONLY else track), "-n", "24"]
        return found + (["--hide-question"] if track == "hidden" else [])
    if track == "text":
        return ["kld", "--data", data / "text.jsonl", "--lengths", "2048", "--chunks", "1"]
    return ["kld", "--data", generated(args, model), "--lengths", str(PROMPT + WRITTEN), "--chunks", "1"]


def parts(args, model, track):
    """(name, methods, types of the cache, shares) of the commands of a phase: all at once, or, judged, each in its storage."""
    if args.phase == "development":
        methods = ["winnow", *(m for m in INGREDIENTS if has_profile(model) or "profile" not in m), *RIVALS]
        found = [("all", args.methods or methods, STORAGES, TRIED[track])]
        saturated = saturated_methods(args) if track in QUESTIONS else []
        return found + [("saturated", saturated, STORAGES, SMALLER)] * bool(saturated)
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
    if track in QUESTIONS:
        methods_of["f16", ()].append("full")
    # The first full cache is what a KL divergence is taken from, and that is the one in f16.
    return [("-".join([storage.replace("/", "-"), *shares]), methods, [storage] if track in QUESTIONS else list(dict.fromkeys(["f16", storage])), shares)
            for (storage, shares), methods in methods_of.items()]  # fmt: skip


def has_profile(model):
    return model == "bundled" or (ROOT / (MODELS[model] + ".profile")).exists()


def part_file(args, name):
    return documents_of(args) / name


def command_of(args, track, model, storage, methods, types, shares):
    """A part's name and its command, which goes on where it was interrupted."""
    name = f"{model}-{track}-{storage}"
    part = part_file(args, name)
    budget = ["--equal-bytes", ",".join(shares)] if shares else []
    return name, [args.winnow, "eval", *arguments(args, model, track), "-m", MODELS[model], "--kv-method", ",".join(methods), *budget, "--cache-types", ",".join(types), "-t", args.threads, "--results", f"{part}.jsonl",
                  "--json", f"{part}.json"]  # fmt: skip


def start(args, name, command):
    with open(part_file(args, f"{name}.log"), "w") as log:
        # In a session of its own: what is typed here interrupts this script, which tells it once.
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=log, cwd=ROOT, start_new_session=True)


def check_frozen(args):
    """Stops unless everything is as it was frozen."""
    for path, command in (FROZEN, "freeze"), (documents_of(args) / "made.json", "documents"):
        if not path.exists():
            sys.exit(f"{path} is missing: `{command}` makes it")
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
    score, _ = SCORES[track]
    found = collections.defaultdict(dict)
    for name in parts_read or [name for name, *_ in parts(args, model, track)]:
        path = part_file(args, f"{model}-{track}-{name}.json")
        if not path.exists():
            continue
        for sample in json.loads(path.read_text())["samples"]:
            for result in sample["results"]:
                share = result["budget"].removeprefix("equal bytes ")
                fits = not share or result["cache_bytes_with_lists"] <= 1.005 * float(share) * result["cache_bytes_full_f16"]
                if score in result.get("scores", {}) and fits:
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
        nothing = 0.0 if SCORES[track][1] > 0 else math.inf
        for method, storage in ways:
            scores = found.get((method, "" if method == "full" else share, storage), {})
            means[method, storage].append(statistics.mean(scores.values()) if scores else nothing)
    return means


def is_finished(args, track, model, part, shares):
    path = part_file(args, f"{model}-{track}-{part}.json")
    if not path.exists():
        return False
    found = json.loads(path.read_text())
    return found["finished"] and set(shares) <= {result["budget"].removeprefix("equal bytes ") for result in found["samples"][0]["results"]}


def saturated_methods(args):
    """Once all questions were asked: at the development's share nearly all storages of these answer as the full cache does."""
    if not all(is_finished(args, track, model, "all", TRIED[track]) for track in QUESTIONS for model in MODELS):
        return []
    means = mean_scores(args, QUESTIONS, TRIED["hidden"], "all")
    enough = SATURATED * statistics.mean(means["full", "f16"])
    return [m for m in ["winnow", *RIVALS] if sum(statistics.mean(means[m, s]) >= enough for s in STORAGES if (m, s) in means) > 1]


def best_storage(means, method, sign):
    """Of the best mean; of KL divergences the geometric one, so that every model counts, over the cells in which all storages fit."""
    cells = {kind: means[method, kind] for kind in STORAGES if (method, kind) in means}
    whole = [i for i in range(len(next(iter(cells.values())))) if all(0 < sign * cells[kind][i] or 0 < cells[kind][i] < math.inf for kind in cells)]
    if not whole:
        return STORAGES[-1]
    if sign > 0:
        return max(cells, key=lambda kind: statistics.mean(cells[kind][i] for i in whole))
    return min(cells, key=lambda kind: statistics.geometric_mean(cells[kind][i] for i in whole))


def freeze(args):
    """Each method's best storage at each share, and who is left out of a track."""
    args.phase = "development"
    missing = [f"{model}-{track}-{name}" for track in SCORES for model in MODELS for name, _, _, shares in parts(args, model, track)
               if not is_finished(args, track, model, name, shares)]  # fmt: skip
    if missing:
        sys.exit(f"not finished: {', '.join(missing)}; `run --phase development` goes on")
    saturated = saturated_methods(args)
    smaller = mean_scores(args, QUESTIONS, SMALLER, "saturated")
    storage, left_out = {track: {} for track in SCORES}, {}
    for tracks, sign in (QUESTIONS, 1), (DIVERGENCES, -1):
        for share in SHARES:
            tried = next((t for t in TRIED[tracks[0]] if float(t) <= float(share)), TRIED[tracks[0]][-1])
            means = mean_scores(args, tracks, [tried], "all")
            chosen = {method: best_storage(smaller if sign > 0 and method in saturated else means, method, sign) for method in ["winnow", *RIVALS]}
            for track in tracks:
                # Ingredients are judged by leaving them out, everything else as it is.
                storage[track][share] = chosen | {method: chosen["winnow"] for method in INGREDIENTS}
        for track in tracks:
            means = mean_scores(args, [track], ["0.0625"], "all")
            own = means["winnow", storage[track]["0.0625"]["winnow"]]
            scores = {rival: means[rival, storage[track]["0.0625"][rival]] for rival in RIVALS}
            nearest = max(RIVALS, key=lambda rival: sign * statistics.mean(scores[rival]))
            left_out[track] = [rival for rival in RIVALS if rival != nearest and all(
                (a > HOPELESS * b if sign > 0 else HOPELESS * a < b < math.inf) for a, b in zip(own, scores[rival]))]  # fmt: skip
    FROZEN.write_text(json.dumps({
        "storage": storage, "saturated": saturated, "left out": left_out,
        "documents of a task, windows": DOCUMENTS["judgement"], "books": BOOKS["judgement"], "parameters": parameters(args),
    }, indent=1) + "\n")  # fmt: skip
    print(FROZEN.read_text())


def parameters(args):
    """winnow's, with their defaults, as it shows them."""
    return winnow(args, "methods", "winnow", stdout=subprocess.PIPE).stdout.decode().partition("Parameters:\n")[2].splitlines()


def documents(args):
    args.phase = "judgement"
    seed = hashlib.sha256(FROZEN.read_bytes()).hexdigest()
    subprocess.run([args.python, HERE / "documents.py", "--out", documents_of(args), "--seed", seed, "--books", *BOOKS["judgement"], "--documents",
                    str(DOCUMENTS["judgement"])], check=True)  # fmt: skip


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
        scale, digits = (100, 1) if SCORES[track][0] == "score" else (1000, 2)
        full = cells.get(("full", "", "f16"), {})
        unit = f"answers in per cent; full cache {mean_and_error(full, 100, 1)}" if scale == 100 else "KL divergence in thousandths of a nat"
        ways = list(dict.fromkeys((method, storage) for method, share, storage in cells if share))
        shares = [s for s in SHARES if any(share == s for _, share, _ in cells)]
        rows = [[f"`{method}`", storage, *(mean_and_error(cells[method, s, storage], scale, digits) if (method, s, storage) in cells else ""
                                           for s in shares)] for method, storage in ways]  # fmt: skip
        text.append(f"### {model}, {track}\n\n{len(full)} documents; {unit}.\n\n"
                    + table(["method", "cache", *(f"1/{round(1 / float(s))}" for s in shares)], rows))
        own = [storage for method, storage in ways if method == "winnow"]
        for share in shares:
            for method, storage in ways:
                for kind in own if args.phase == "judgement" else [storage]:
                    if method != "winnow" and ("winnow", share, kind) in cells and (method, share, storage) in cells:
                        a, b = cells["winnow", share, kind], cells[method, share, storage]
                        pairs.append((track, model, share, f"{method} {storage}", [SCORES[track][1] * (a[k] - b[k]) for k in a if k in b]))
    significant = holm([chance(pair[-1]) for pair in pairs])
    rows = []
    for (track, model, share, other, differences), sure in zip(pairs, significant):
        scale, digits = (100, 1) if SCORES[track][0] == "score" else (1000, 2)
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
    parser.add_argument("--tracks", nargs="+", choices=SCORES, default=list(SCORES))
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
    {"run": run, "freeze": freeze, "documents": documents, "tables": tables}[args.what](args)


if __name__ == "__main__":
    main()
