"""Tables of judge.py's results: means of every cell, and winnow's paired differences from every rival and without each of its ingredients."""
import json
import math
import pathlib
import statistics
import sys

import protocol
from parts import FROZEN, complete, measured, parts
from protocol import TRACKS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "study"))
from orderings import chance, half_width, holm, table  # noqa: E402


def share_name(share):
    return f"1/{round(1 / float(share))}"


def mean_and_error(scores, scale, digits):
    values = list(scores.values())
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{scale * statistics.mean(values):.{digits}f} ± {scale * error:.{digits}f}"


def means_table(setup, model, track, cells):
    full = cells.get(("full", "", "f16"), {})
    unit = setup.unit + ("" if setup is protocol.DIVERGENCE else f"; full cache {mean_and_error(full, setup.scale, setup.digits)}")
    rows = [[f"`{method}`", storage, *(mean_and_error(cells[method, s, storage], setup.scale, setup.digits) if (method, s, storage) in cells else ""
                                       for s in setup.shares)]
            for method, storage in dict.fromkeys((method, storage) for method, share, storage in cells if share)]  # fmt: skip
    return f"### {model}, {track}\n\n{len(full)} documents; {unit}.\n\n" + table(["method", "cache", *map(share_name, setup.shares)], rows)


def paired_differences(setup, cells, phase):
    """(share, method, storage, differences in winnow's favour) for all other methods; in development only at the same storage."""
    found = []
    for share in setup.shares:
        own = {storage: scores for (method, s, storage), scores in cells.items() if (method, s) == (setup.own, share)}
        for (method, s, storage), b in cells.items():
            if s != share or method == setup.own:
                continue
            for kind, a in own.items():
                if phase == "judgement" or kind == storage:
                    found.append((share, method, storage, [setup.sign * (a[k] - b[k]) for k in a if k in b]))
    return found


def without_figures(args, track, model, measured_cells, cells):
    """Lines about planned cells whose results are incomplete."""
    n = max(map(len, measured_cells.values()), default=0)
    return [f"{track}, {model}, {share_name(share)}: `{method}` in {types}, whose cache fits in {len(measured_cells.get((method, share, types), {}))} of {n} documents"
            for part in parts(args, model, track) for method in part.methods for share in part.shares for types in part.types
            if (method, share, types) not in cells]  # fmt: skip


def left_out():
    """Lines about the rivals that were left out of the evaluation, by track and share."""
    frozen = json.loads(FROZEN.read_text())["left out"]
    return [f"{track}, {share_name(share)}: {', '.join(f'`{method}`' for method in methods)}" for track, shares in frozen.items()
            for share, methods in shares.items() if methods]  # fmt: skip


def listed(title, text, lines):
    return f"### {title}\n\n{text}\n\n" + "".join(f"- {line}\n" for line in lines) if lines else ""


def make_tables(args):
    text, pairs, missing = [], [], []
    for track in args.tracks:
        setup = TRACKS[track]
        for model in args.models:
            found = measured(args, track, model, parts(args, model, track))
            cells = complete(found)
            missing += without_figures(args, track, model, found, cells)
            if cells:
                text.append(means_table(setup, model, track, cells))
                pairs += [(track, model, *pair) for pair in paired_differences(setup, cells, args.phase)]
    pairs = [pair for pair in pairs if len(pair[-1]) > 1]
    rows = []
    for (track, model, share, method, storage, differences), significant in zip(pairs, holm([chance(pair[-1]) for pair in pairs])):
        setup, mean = TRACKS[track], statistics.mean(differences)
        word = "open" if not significant else "better" if mean > 0 else "**worse**"
        figures = f"{setup.scale * mean:+.{setup.digits}f} ± {setup.scale * half_width(differences):.{setup.digits}f}"
        rows.append([track, model, share_name(share), f"`{method} {storage}`", figures, word])
    text.append("### winnow against each\n\nPaired differences, positive where `winnow` is better, with the half width of their 95 % interval; Holm's "
                "correction over all rows.\n\n" + table(["track", "model", "bytes", "other", "difference", "winnow is"], rows))
    if args.phase == "judgement":
        text.append(listed("Left out", f"`winnow` was more than {protocol.HOPELESS} times better on every model in the development.", left_out()))
    text.append(listed("Without figures", "Of these the bytes do not suffice in all documents, or nothing was measured.", missing))
    return "\n".join(filter(None, text))
