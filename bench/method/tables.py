"""Tables of judge.py's results: means of every cell, and winnow's paired differences from every rival and without each of its ingredients."""
import json
import math
import pathlib
import statistics
import sys
import textwrap

import protocol
from parts import FROZEN, common, complete, document_folder, measured, parts
from protocol import MODELS, TRACKS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "study"))
from orderings import chance, half_width, holm, table  # noqa: E402


def share_name(share):
    return f"1/{round(1 / float(share))}"


def mean_and_error(scores, scale, digits):
    values = list(scores.values())
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{scale * statistics.mean(values):.{digits}f} ± {scale * error:.{digits}f}"


ENOUGH = 0.9  # a model counts for questions of which its full cache answers as many


def counts(setup, cells):
    """Whether a model counts in a track."""
    full = cells.get(("full", "", "f16"), {})
    return setup is not protocol.ANSWERS or not full or statistics.mean(full.values()) >= ENOUGH


def means_table(setup, model, track, cells):
    full = cells.get(("full", "", "f16"), {})
    if not counts(setup, cells):
        track += ": not counted, because the full cache answers less than 90 %"
    unit = setup.unit + (", in brackets medians" if setup is protocol.DIVERGENCE else f"; full cache {mean_and_error(full, setup.scale, setup.digits)}")

    def figures(scores):
        median = f" ({setup.scale * statistics.median(scores.values()):.{setup.digits}f})" if setup is protocol.DIVERGENCE else ""
        return mean_and_error(scores, setup.scale, setup.digits) + median

    rows = [[f"`{method}`", storage, *(figures(cells[method, s, storage]) if (method, s, storage) in cells else "" for s in setup.shares)]
            for method, storage in dict.fromkeys((method, storage) for method, share, storage in cells if share)]  # fmt: skip
    return f"### {model}, {track}\n\n{len(full)} documents; {unit}.\n\n" + table(["method", "cache", *map(share_name, setup.shares)], rows)


def paired_differences(setup, cells, phase):
    """(share, method, storage, median of winnow's score divided by the other's, differences in winnow's favour) for all other methods, and of
    answers the full cache; in development only at the same storage."""
    found = []
    for share in setup.shares:
        own = {storage: scores for (method, s, storage), scores in cells.items() if (method, s) == (setup.own, share)}
        for (method, s, storage), b in cells.items():
            if method == setup.own or not (s == share or (method == "full" and storage == "f16" and setup is protocol.ANSWERS)):
                continue
            for kind, a in own.items():
                if phase == "judgement" or kind == storage or method == "full":
                    both = [(a[k], b[k]) for k in a if k in b]
                    ratio = statistics.median(x / y for x, y in both if y) if setup is protocol.DIVERGENCE else None
                    found.append((share, method, storage, ratio, [setup.sign * (x - y) for x, y in both]))
    return found


def planned(args, track, model):
    return [(method, share, types) for part in parts(args, model, track) for method in part.methods for share in part.shares for types in part.types]


def n_planned(args, track, model):
    """Documents of a cell: of each task, three times as many where there is one."""
    if TRACKS[track] is not protocol.ANSWERS:
        return protocol.DOCUMENTS[args.phase]
    n_tasks = 3 if model in protocol.NEEDLES_ONLY else len(list((document_folder(args) / track).glob("*.jsonl")))
    return n_tasks * protocol.DOCUMENTS[args.phase]


def without_figures(args, track, model, run, cells):
    """Lines about planned cells that have no figures. run: the cells of common()."""
    lines = []
    for method, share, types in planned(args, track, model):
        if (method, share, types) in cells:
            continue
        scores = run.get((method, share, types))
        why = "not run yet" if scores is None else f"its cache fits, without an error, in {sum(s is not None for s in scores.values())} of {len(scores)} documents"
        lines.append(f"{track}, {model}, {share_name(share)}: `{method}` in {types}: {why}")
    return lines


def left_out(tracks):
    """Lines about the rivals that were left out of the evaluation, by track and share, and where that was measured."""
    frozen = json.loads(FROZEN.read_text())["left out"]
    lines = []
    for track in tracks:
        shares_of = {}  # (where it was measured, methods) -> shares
        for share, methods in frozen[track].items():
            shares_of.setdefault((protocol.tried_for(TRACKS[track], share), tuple(methods)), []).append(share)
        lines += [f"{track}, {', '.join(map(share_name, shares))} (measured at {share_name(tried)}): {', '.join(f'`{method}`' for method in methods)}"
                  for (tried, methods), shares in shares_of.items() if methods]  # fmt: skip
    return lines


def wrapped(text, indent=""):
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def listed(title, text, lines):
    return f"### {title}\n\n{wrapped(text)}\n\n" + "".join(wrapped("- " + line, "  ") + "\n" for line in lines) if lines else ""


def make_tables(args):
    text, pairs, missing, n_done, n_all = [], [], [], 0, 0
    for track in args.tracks:
        setup = TRACKS[track]
        for model in args.models:
            found = measured(args, track, model, parts(args, model, track))
            run = common(found)
            cells = complete(run)
            cells_planned = planned(args, track, model)
            n_all += len(cells_planned) * n_planned(args, track, model)
            n_done += sum(len(found.get(cell, {})) for cell in cells_planned)
            missing += without_figures(args, track, model, run, cells)
            if cells:
                text.append(means_table(setup, model, track, cells))
                pairs += [(track, model, counts(setup, cells), *pair) for pair in paired_differences(setup, cells, args.phase)]
    if n_done < n_all or list(args.tracks) != list(TRACKS) or list(args.models) != list(MODELS):
        text.insert(0, wrapped(f"**Not the whole evaluation**: {n_done:,} of {n_all:,} results, of the tracks {', '.join(args.tracks)} and the models "
                               f"{', '.join(args.models)}. Holm's correction is over the rows that are there, so verdicts can change.") + "\n")
    pairs = [pair for pair in pairs if len(pair[-1]) > 1]
    # The full cache is no rival, and where a model does not count there is no verdict.
    judged = [counted and method != "full" for _, _, counted, _, method, *_ in pairs]
    found_significant = iter(holm([chance(pair[-1]) for pair, is_judged in zip(pairs, judged) if is_judged]))
    rows = []
    for (track, model, _, share, method, storage, ratio, differences), is_judged in zip(pairs, judged):
        setup, mean = TRACKS[track], statistics.mean(differences)
        significant = is_judged and next(found_significant)
        word = "" if not is_judged else "open" if not significant else "better" if mean > 0 else "**worse**"
        around = setup.scale * half_width(differences)
        digits = max(setup.digits, math.ceil(-math.log10(around)) if 0 < around < 1 else 0)  # no interval is shown as 0
        figures = f"{setup.scale * mean:+.{digits}f} ± {around:.{digits}f}"
        won, lost = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        rows.append([track, model, share_name(share), f"`{method} {storage}`", figures, f"{won}, {lost} of {len(differences)}",
                     f"{ratio:.2f}" if ratio else "", word])
    text.append("### winnow against each\n\n" + wrapped("Paired differences, positive where `winnow` is better, with the half width of their 95 % interval, and the "
                "documents in which `winnow` is better and worse; of KL divergences also the median of `winnow`'s divided by the other's in the same "
                "document. Verdicts: a randomization test (random signs of the differences; the interval is Student's t) with Holm's correction over all "
                "rows that have one; \"open\" means that the difference is not significant, not that there is none. Without a verdict: the full "
                "cache, and models that do not count.") + "\n\n" + table(["track", "model", "bytes", "other", "difference", "documents", "median ratio", "winnow is"], rows))
    if args.phase == "judgement":
        text.append(listed("Left out", f"`winnow` was more than {protocol.HOPELESS} times better on every model in the development, at the share at which "
                                       "it was measured there; at the others nothing is known of these methods.", left_out(args.tracks)))
    text.append(listed("Without figures", "These cells are not in the tables.", missing))
    return "\n".join(filter(None, text))
