"""The parts of judge.py's phases: the command of each part, and the scores read from its results."""
import collections
import functools
import json
import pathlib
import subprocess

import protocol
from protocol import MODELS, STORAGES, TRACKS

ROOT = pathlib.Path(__file__).resolve().parents[2]
FROZEN = pathlib.Path(__file__).resolve().parent / "frozen.json"
Part = collections.namedtuple("Part", "name methods types shares")  # one command, for a track and a model


def document_folder(args):
    return args.data / args.phase


def winnow(args, *words, **more):
    return subprocess.run([str(w) for w in (args.winnow, *words)], check=True, cwd=ROOT, **more)


def prompts(args, model):
    """The beginnings of the windows, of which a text is generated."""
    for line in (document_folder(args) / "text.jsonl").read_text().splitlines():
        window = json.loads(line)["text"]
        ids = json.loads(winnow(args, "tokenize", "-m", MODELS[model], "-f", "-", "--json", "--no-bos", input=window.encode(),
                                stdout=subprocess.PIPE).stdout)["tokens"]
        yield window[:len(window) * protocol.PROMPT // len(ids)].rpartition(" ")[0]


def continuation(args, model, prompt, seed):
    """What the model writes after the prompt, with the full cache. It can differ between CPUs, in whose sums the order of terms differs."""
    return winnow(args, "run", "-m", MODELS[model], "-q", "-f", "-", "-n", protocol.WRITTEN + 64, "--temp", "0.8", "--seed", seed, "--ignore-eos",
                  "--no-display-prompt", "-t", args.threads, input=prompt.encode(), stdout=subprocess.PIPE).stdout.decode(errors="replace")


def continuations_file(args, model):
    return document_folder(args) / f"continuations-{model}.json"


def generated(args, model, check):
    """A file of texts: each is the beginning of a window, continued by the model."""
    path = document_folder(args) / f"generated-{model}.jsonl"
    if not path.exists():
        beginnings, kept = list(prompts(args, model)), continuations_file(args, model)
        written = json.loads(kept.read_text()) if kept.exists() else [continuation(args, model, prompt, i) for i, prompt in enumerate(beginnings)]
        text = "".join(json.dumps({"text": prompt + more}) + "\n" for prompt, more in zip(beginnings, written, strict=True)).encode()
        check(path.name, text)
        if not kept.exists():
            partial = kept.with_suffix(".tmp")  # `keep` may run at the same time
            partial.write_text(json.dumps(written, indent=0) + "\n")
            partial.replace(kept)
        path.write_bytes(text)
    return path


def task_flags(args, model, track, check):
    """The task of `winnow eval` and its flags. check(name, data): exits if a file that is generated must not have this data."""
    data = document_folder(args)
    if TRACKS[track] is protocol.ANSWERS:
        found = ["ruler", "--raw", "--data", data / (track + "-needle" if model in protocol.NEEDLES_ONLY else track), "-n", "24"]
        return found + (["--hide-question"] if track == "hidden" else [])
    if track == "text":
        return ["kld", "--data", data / "text.jsonl", "--lengths", protocol.WINDOW, "--chunks", "1"]
    if TRACKS[track] is protocol.STREAM:
        return ["perplexity", "--protocol", "sliding", "--data", data / "text.jsonl", "--lengths", protocol.WINDOW, "--chunks", "1"]
    return ["kld", "--data", generated(args, model, check), "--lengths", protocol.PROMPT + protocol.WRITTEN, "--chunks", "1"]


@functools.cache
def window_bytes(winnow_file, model):
    """Bytes of the full f16 cache for one window of text."""
    shown = subprocess.run([winnow_file, "inspect", "-m", MODELS[model], "--json"], check=True, cwd=ROOT, stdout=subprocess.PIPE).stdout
    return json.loads(shown)["cache_bytes_per_1k_tokens"]["f16"] * protocol.WINDOW // 1000


def budgets(args, model, track, shares):
    if TRACKS[track] is not protocol.STREAM:
        return ["--equal-bytes", ",".join(shares)]
    return ["--kv-memory", ",".join(str(int(float(share) * window_bytes(args.winnow, model))) for share in shares)]


def requested_share(args, model, result):
    """The share that was requested for a result; "" for the full cache."""
    kind, _, number = result["budget"].rpartition(" ")
    if kind != "memory":
        return number
    return min(protocol.STREAM.shares, key=lambda share: abs(float(share) * window_bytes(args.winnow, model) - int(number)))


def has_profile(model):
    return model == "bundled" or (ROOT / (MODELS[model] + ".profile")).exists()


def parts(args, model, track):
    """The commands of a phase: all methods with all storages in development; each method with its frozen storage in the final evaluation."""
    setup = TRACKS[track]
    if args.phase == "development":
        found = [Part("all", [setup.own, *setup.rivals], STORAGES, setup.tried)]
        saturated = saturated_methods(args) if setup is protocol.ANSWERS else []
        return found + [Part("saturated", saturated, STORAGES, protocol.SMALLER)] * bool(saturated)
    frozen = json.loads(FROZEN.read_text())
    shares_of = collections.defaultdict(list)  # (method, storage) -> shares
    for share, chosen in frozen["storage"][track].items():
        for method, storage in chosen.items():
            if method not in frozen["left out"][track][share] and (has_profile(model) or "profile" not in method):
                shares_of[method, storage].append(share)
    methods_of = collections.defaultdict(list)  # (storage, shares) -> methods
    for (method, storage), shares in shares_of.items():
        methods_of[storage, tuple(shares)].append(method)
    return [Part("-".join([storage.replace("/", "-"), *shares]), methods, [storage], shares) for (storage, shares), methods in methods_of.items()]


def part_file(args, track, model, part, ending):
    return document_folder(args) / f"{model}-{track}-{part.name}.{ending}"


def part_command(args, track, model, part, check=lambda name, data: None):
    """The command of a part; it resumes where it was interrupted. check: as in task_flags."""
    return [args.winnow, "eval", *task_flags(args, model, track, check), "-m", MODELS[model], "--kv-method", ",".join(part.methods),
            *budgets(args, model, track, part.shares), "--full-type", "f16", "--cache-types", ",".join(part.types), "-t", args.threads,
            "--results", part_file(args, track, model, part, "jsonl"), "--json", part_file(args, track, model, part, "json")]  # fmt: skip


def part_output(args, track, model, part):
    """The output of a part's command; None if there is none yet."""
    path = part_file(args, track, model, part, "json")
    return json.loads(path.read_text()) if path.exists() else None


def is_finished(args, track, model, part):
    found = part_output(args, track, model, part)
    if not found or not found["finished"]:
        return False
    done = {(result["method"], requested_share(args, model, result), result["cache_types"]) for result in found["samples"][0]["results"]}
    return done >= {(method, share, types) for method in part.methods for share in part.shares for types in part.types}


def unfinished(args):
    return [f"{model}-{track}-{part.name}" for track in TRACKS for model in MODELS for part in parts(args, model, track)
            if not is_finished(args, track, model, part)]  # fmt: skip


def measured(args, track, model, chosen):
    """{(method, share, storage): {document: score}} of some parts; the full f16 cache is ("full", "", "f16"). A score is None if there is none because of
    an error, or because the cache takes more than its share: a method's minimum can exceed the share. In streams the share is a limit that does not
    include lists."""
    score = TRACKS[track].score
    counted = "cache_bytes" if TRACKS[track] is protocol.STREAM else "cache_bytes_with_lists"
    found = collections.defaultdict(dict)
    for part in chosen:
        for sample in (part_output(args, track, model, part) or {"samples": []})["samples"]:
            for result in sample["results"]:
                share, value = requested_share(args, model, result), result.get("scores", {}).get(score)
                if value is not None and share and result[counted] > 1.005 * float(share) * result["cache_bytes_full_f16"]:
                    value = None
                found[result["method"], share, result["cache_types"]][sample["sample"]] = value
    return found


def complete(cells):
    """The cells that have a score in all documents."""
    everything = set().union(*cells.values()) if cells else set()
    return {key: scores for key, scores in cells.items() if scores.keys() == everything and None not in scores.values()}


def common(cells):
    """The cells, restricted to the documents that all of them were run on; of cells that have only begun (less than nine tenths of the documents) nothing."""
    most = max(map(len, cells.values()), default=0)
    begun = {key: scores for key, scores in cells.items() if len(scores) >= 0.9 * most}
    documents = sorted(set.intersection(*(set(scores) for scores in begun.values()))) if begun else []
    return {key: {document: scores[document] for document in documents} for key, scores in begun.items()}


def mean_scores(args, tracks, shares, name):
    """{(method, storage): mean scores of the cells of some tracks, in the order of tracks, models, shares}, with ("full", storage) too; None: not all
    documents fit there. name: the development parts to read."""
    cells = [(share, complete(measured(args, track, model, [p for p in parts(args, model, track) if p.name == name])))
             for track in tracks for model in MODELS for share in shares]  # fmt: skip
    keys = {(method, storage) for _, found in cells for method, _, storage in found}
    means = {key: [] for key in keys}
    for share, found in cells:
        for method, storage in keys:
            scores = found.get((method, "" if method == "full" else share, storage))
            means[method, storage].append(sum(scores.values()) / len(scores) if scores else None)
    return means


def saturated_methods(args):
    """The methods that answer like the full cache with nearly all storages at the development's share; none until all questions were run."""
    questions, setup = protocol.alike("hidden"), TRACKS["hidden"]
    everything = Part("all", [setup.own, *setup.rivals], STORAGES, setup.tried)
    if not all(is_finished(args, track, model, everything) for track in questions for model in MODELS):
        return []
    found = [complete(measured(args, track, model, [everything])) for track in questions for model in MODELS]

    def mean(method, share, storage):
        scores = [cells.get((method, share, storage)) for cells in found]
        return sum(sum(s.values()) / len(s) for s in scores) / len(scores) if all(scores) else 0

    enough = protocol.SATURATED * mean("full", "", "f16")
    return [m for m in [setup.own, *setup.rivals] if sum(mean(m, setup.tried[0], storage) >= enough for storage in STORAGES) > 1]
