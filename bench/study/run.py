#!/usr/bin/env python3
"""The study: every method at 1/2 to 1/32 of the full cache's bytes, with questions known and hidden, in caches of every type, and on an endless
stream.

    build/train/venv/bin/python bench/study/make_data.py --out build/study     # the documents
    python3 bench/study/run.py --data build/study --out docs/study             # ten hours or more on two cores

Every part is one `winnow eval` command; an interrupted run resumes where it stopped (--data/results-PART.jsonl). Writes to --out
tables.md, data.json (every figure of the tables), samples.json (the score of every sample, which orderings.py reads), and one page per part.
Parts that are not run are taken from --data; if they are not there either, --out keeps its version of them. With --methods only these methods
and the full cache are run, and their figures replace their old ones in --out; pages are then written to --data.
"""
import argparse
import collections
import json
import math
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
METHODS = ("local streaming lm-infinite random h2o tova scissorhands roco cam snapkv pyramidkv pyramidinfer cake adakv twilight "
           "treekv treekv:prefill=step refreekv d2o d2o:into_sinks=false hbw hbw:pool=none ems winnow keydiff keydiff:sinks=4,recent=64 knorm knorm:sinks=4,recent=64").split()
TASKS = ("needle", "key_value", "multi_value", "two_hop_named", "few_shot")  # the last has no hidden questions
SHARES = ["0.5", "0.25", "0.125", "0.0625", "0.03125"]
# One method of each family, with caches of every type, to find the best use of bytes.
AT_BYTES = "streaming snapkv treekv hbw d2o ems winnow keydiff".split()
AT_EQUAL_BYTES = "At equal bytes"
TOLERANCE = 1.005  # the same as in `winnow eval`
OWN_SIZE = ["refreekv"]  # if no budget is given
# With original positions the stream would end at the model's context.
STREAMED = "local streaming h2o:sinks=4,recent=0.5,positions=reassigned tova:sinks=4,recent=0.5,positions=reassigned treekv treekv:select_left=true".split()


def parts(args):
    """name -> arguments of `winnow eval`, without the parts in which none of the methods takes part."""
    data = args.data

    def chosen(methods):
        return ["--kv-method", ",".join(m for m in methods if not args.methods or m in args.methods)]

    recall = ["ruler", "--raw", "--data", str(data / "tasks"), "-n", "24"]
    kld = ["kld", "--data", str(data / "held.txt"), "--lengths", "2048", "--chunks", str(args.windows)]
    hidden = ["ruler", "--raw", "--data", str(data / "hidden"), "-n", "24", "--hide-question"]
    methods, shares = chosen(METHODS), ["--equal-bytes", ",".join(SHARES)]
    own = ["--kv-method", ",".join(m for m in OWN_SIZE if not args.methods or m in args.methods)]
    few = chosen(AT_BYTES) + ["--equal-bytes", ",".join(SHARES[1:4]), "--cache-types", "f16,q8_0,q4_0"]
    found = {
        "recall": recall + methods + shares,
        "hidden": hidden + methods + shares,
        "own-size": recall + own,
        "kld": kld + methods + shares,
        "bytes-recall": recall + ["--tasks", "needle,key_value"] + few,
        "bytes-kld": kld + few,
        "stream": ["perplexity", "--data", str(data / "stream.txt"), "--protocol", "stream", "--every", "5000", *chosen(STREAMED), "--kv-size",
                   "128,512"],
    }
    return {name: arguments for name, arguments in found.items() if arguments[arguments.index("--kv-method") + 1]}


def run_part(args, name, arguments):
    out = args.data / f"{name}.json"
    command = [str(args.winnow), "eval", *arguments, "-m", args.model, "--results", str(args.data / f"results-{name}.jsonl"),
               "--json", str(out), "--report", str((args.data if args.methods else args.out) / f"{name}.html"), "-t", str(args.threads)]
    print("$ winnow " + " ".join(command[1:]), file=sys.stderr, flush=True)
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"the part '{name}' failed")
    return json.loads(out.read_text())


def way(row):
    """The variant that a row or result belongs to: method, budget, types of the cache."""
    return row["method"], row["budget"], row["cache_types"]


def mean(values):
    values = [v for v in values if v is not None]
    return statistics.mean(values) if values else None


def share_text(budget):
    return budget.removeprefix("equal bytes ")


def is_over(result):
    """Whether it takes more bytes than its share: on a short prompt a method's minimum can be larger than the share."""
    share = share_text(result["budget"])
    return share != result["budget"] and result["cache_bytes_with_lists"] > TOLERANCE * float(share) * result["cache_bytes_full_f16"]


def cells(found, score):
    """{way: {task: mean score}} with "bytes" (with lists, as a share of the full f16 cache's). A way that takes more than its share for some samples of
    a task has no mean for that task."""
    n_samples = collections.Counter(sample.get("task", "text") for sample in found["samples"])
    gathered = {}
    for sample in found["samples"]:
        for result in sample["results"]:
            cell = gathered.setdefault(way(result), {})
            if score in result.get("scores", {}) and not is_over(result):
                cell.setdefault(sample.get("task", "text"), []).append(result["scores"][score])
                cell.setdefault("bytes", []).append(result["cache_bytes_with_lists"] / result["cache_bytes_full_f16"])
    return {key: {task: mean(values) for task, values in cell.items() if task not in n_samples or len(values) == n_samples[task]}
            for key, cell in gathered.items()}  # fmt: skip


def with_new_figures(old, new):
    """Rows and groups of a part, with the old ones of re-run methods replaced; "again" records the build that made the new ones."""
    methods = {row["method"] for row in new["rows"]} - {"full"}
    groups = {group["group"]: group for group in new["groups"]}
    again = old.get("again", {}) | {method: {"winnow": new["winnow"], "machine": new["machine"]} for method in sorted(methods)}
    return old | {"rows": [r for r in old["rows"] if r["method"] not in methods] + [r for r in new["rows"] if r["method"] in methods],
                  "groups": [group | groups[group["group"]] for group in old["groups"]], "again": again}  # fmt: skip


def rounded(value, digits=6):
    return value if value is None else float(f"{value:.{digits}g}")


def samples(found):
    """{score: ..., "kept": ...} of every sample, one number for each of "ways"; for streams also the points of their curves."""
    ways = list(dict.fromkeys(way(r) for s in found["samples"] for r in s["results"]))
    lines = []
    for sample in found["samples"]:
        by_way = {way(r): r for r in sample["results"] if not is_over(r)}
        results = [by_way.get(w, {}) for w in ways]
        line = {"sample": sample["sample"], "task": sample.get("task", "")}
        for score in sorted({name for r in results for name in r.get("scores", {})}):
            line[score] = [rounded(r.get("scores", {}).get(score)) for r in results]
        line["kept"] = [rounded(r.get("kept")) for r in results]
        curves = [r.get("details", {}).get("points", []) for r in results]
        if any(curves):
            line["points"] = [[[p["tokens"], rounded(p["nll"], 8)] for p in curve] for curve in curves]
        lines.append(line)
    return {"ways": ways, "samples": lines}


def with_new_ways(old, new):
    """Samples of old and new ways: new ways replace old ones of the same methods. Both must be of the same documents."""
    kept = [i for i, (method, *_) in enumerate(old["ways"]) if method == "full" or method not in {w[0] for w in new["ways"]}]
    added = [i for i, (method, *_) in enumerate(new["ways"]) if method != "full"]
    new_samples = {s["sample"]: s for s in new["samples"]}
    lines = []
    for sample in old["samples"]:
        line = {}
        for key, value in sample.items():
            other = new_samples[sample["sample"]].get(key)
            line[key] = [value[i] for i in kept] + [other[i] for i in added] if isinstance(value, list) else value
        lines.append(line)
    return {"ways": [old["ways"][i] for i in kept] + [list(new["ways"][i]) for i in added], "samples": lines}


def write_samples(path, found, add):
    """Writes JSON with one sample per line; parts that are not in `found` stay. `add`: ways that are not in `found` stay too."""
    gathered = json.loads(path.read_text()) if path.exists() else {}
    for name, part in found.items():
        gathered[name] = with_new_ways(gathered[name], samples(part)) if add and name in gathered else samples(part)
    parts = []
    for name, part in gathered.items():
        lines = ",\n".join("  " + json.dumps(line) for line in part["samples"])
        parts.append(f'{json.dumps(name)}: {{\n "ways": {json.dumps(part["ways"])},\n "samples": [\n{lines}\n ]}}')
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def with_new_rows(old, new, n_keys):
    """Lines of a table: a new row replaces the old row with the same first n_keys cells, or comes last."""
    rows = {tuple(line.split("|")[1:1 + n_keys]): line for line in old.strip().splitlines()[4:]}
    rows.update({tuple(line.split("|")[1:1 + n_keys]): line for line in new.strip().splitlines()[4:] if "`full`" not in line})
    lines = list(rows.values())
    if n_keys > 1:  # from the most bytes to the fewest
        lines.sort(key=lambda line: -float(line.split("|")[1 + n_keys]))
    return "\n".join(old.strip().splitlines()[:4] + lines)


def write_tables(path, text, add):
    """Writes the tables under their titles, in their previous order, new ones last. `add`: old rows that are not replaced stay."""
    old = path.read_text().split("### ")[1:] if path.exists() else []
    tables = {}
    for one in old + [new.removeprefix("### ") for new in text]:
        title = one.splitlines()[0]
        if add and title in tables:
            one = with_new_rows(tables[title], "### " + one, 3 if title == AT_EQUAL_BYTES else 1).removeprefix("### ")
        tables[title] = "### " + one.strip() + "\n"
    path.write_text("\n".join(tables.values()))


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def by_share(found, title, get, form):
    """One row for each method, one column for each share of the cache."""
    by_way = {}
    for (method, budget, _), cell in found.items():
        by_way.setdefault(method, {})[share_text(budget)] = get(cell)
    rows = [[f"`{method}`"] + [number(line.get(share, line.get("")), form) for share in SHARES] for method, line in by_way.items()]
    return f"### {title}\n\n" + table(["method", "1/2", "1/4", "1/8", "1/16", "1/32"], rows)


def by_bytes(recall, kld):
    """Every method under every type of cache, from the largest to the smallest."""
    rows = []
    for key in recall:
        method, budget, types = key
        rows.append((recall[key]["bytes"], [f"`{method}`", share_text(budget), types, number(recall[key]["bytes"], "{:.3f}"),
                                            number(recall[key].get("needle")), number(recall[key].get("key_value")),
                                            number(kld.get(key, {}).get("kld"), "{:.3f}")]))
    rows.sort(key=lambda row: -row[0])
    return f"### {AT_EQUAL_BYTES}\n\n" + table(["method", "share", "type", "bytes", "needle", "key-value", "KLD"], [row for _, row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default=ROOT / "build/release/winnow", type=pathlib.Path)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--data", default=ROOT / "build/study", type=pathlib.Path)
    parser.add_argument("--out", default=ROOT / "build/study/out", type=pathlib.Path)
    parser.add_argument("--windows", type=int, default=40, help="of 2048 tokens, for the distance from the full cache")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parts", nargs="*", help="only these; two of these commands side by side with --threads 1 are faster than one with two")
    parser.add_argument("--methods", nargs="*", help="only these, of those the parts have; all others stay in --out as they are")
    parser.add_argument("--tables", action="store_true", help="run nothing: tables of what --data holds")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, arguments in parts(args).items():
        if not args.tables and (not args.parts or name in args.parts):
            found[name] = run_part(args, name, arguments)
        elif (args.data / f"{name}.json").exists():
            found[name] = json.loads((args.data / f"{name}.json").read_text())
    text = []
    data_file = args.out / "data.json"
    data = json.loads(data_file.read_text()) if data_file.exists() else {}
    for name, part in found.items():
        new = {k: part[k] for k in ("model", "machine", "winnow", "rows", "groups")}
        data[name] = with_new_figures(data[name], new) if args.methods and name in data else new
    if "recall" in found:
        recall = cells(found["recall"], "score")
        for task in TASKS:
            text.append(by_share(recall, f"{task}: share of the answers found", lambda c, t=task: c.get(t), "{:.2f}"))
        text.append(by_share(recall, "bytes of the cache, as a share of the full one", lambda c: c.get("bytes"), "{:.3f}"))
    if "hidden" in found:
        hidden = cells(found["hidden"], "score")
        for task in TASKS[:-1]:
            text.append(by_share(hidden, f"{task}, compressed before the question: share of the answers found", lambda c, t=task: c.get(t), "{:.2f}"))
    if "kld" in found:
        text.append(by_share(cells(found["kld"], "kld"), "KL divergence from the full cache, nats per token",
                             lambda c: c.get("text"), "{:.3f}"))
        text.append(by_share(cells(found["kld"], "nll"), "perplexity of the second half of each window",
                             lambda c: c.get("text") and math.exp(c["text"]), "{:.2f}"))
    if "bytes-recall" in found and "bytes-kld" in found:
        distances = {key: {"kld": cell.get("text")} for key, cell in cells(found["bytes-kld"], "kld").items()}
        text.append(by_bytes(cells(found["bytes-recall"], "score"), distances))
    if "stream" in found:
        rows = [[f"`{r['method']}`", r["budget"], number(r.get("perplexity")), number(r.get("kept"), "{:.0f}")] for r in found["stream"]["rows"]]
        text.append("### Streaming perplexity\n\n" + table(["method", "budget", "perplexity", "entries kept"], rows))
    write_tables(args.out / "tables.md", text, bool(args.methods))
    data_file.write_text(json.dumps(data, indent=1) + "\n")
    write_samples(args.out / "samples.json", found, bool(args.methods))


if __name__ == "__main__":
    main()
