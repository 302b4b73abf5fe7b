"""Writes docs/papers/PAPER.md from the rows and their results."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_docs  # noqa: E402
from row import BED_NAMES  # noqa: E402

BUNDLED = "bundled"


def current(row, results):
    """The result of a row, if its commands are still those of the row."""
    result = results.get(row.name)
    return result if result and result["commands"] == row.commands else None


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def line(*cells):
    return "| " + " | ".join(map(cell, cells)) + " |"


def command_lines(row):
    return "".join(f"    winnow {command}\n" for command in row.commands)


def ours(row, results):
    if result := current(row, results):
        return row.read.text(result)
    return "not run" if row.cannot else "not run yet"


def verdict(row, results):
    if result := current(row, results):
        return row.read.verdict(result)
    if row.cannot:
        return f"cannot be run here: {row.cannot}"
    return "not run yet with this command" if row.name in results else "not run yet"


def beds_table(rows, found):
    """The results of the test beds; below the table, for each model, the rows that it has not run."""
    beds = dict.fromkeys([*BED_NAMES, *(model for model in found if model != BUNDLED)])
    results = {bed: found.get(bed, {}) for bed in beds}
    lines = [line(row.name, bed, ours(row, results[bed]), verdict(row, results[bed])) for row in rows for bed in beds if current(row, results[bed])]
    missing = {bed: [f"`{row.name}`" for row in rows if not current(row, results[bed])] for bed in beds}
    parts = [f"{bed} has not run {'any of these rows' if len(names) == len(rows) else ', '.join(names)}" for bed, names in missing.items() if names]
    head = ["| row | model | ours | verdict |", "| --- | --- | --- | --- |", *lines, ""] if lines else []
    return head + ["; ".join(parts) + "."] if parts else head


def found_by(rows, found):
    """The builds, and the rows that each has measured."""
    builds = {}
    for model, results in found.items():
        for row in rows:
            if (result := current(row, results)) and result.get("winnow"):
                unknown = " (this commit is not in the repository: these rows are run again next time)" if result.get("unknown_commit") else ""
                facts = f"- winnow {result['winnow']}{unknown}; {in_words(result['machine'])}; {in_words(result['model'])}: "
                builds.setdefault(facts, []).append(row.name)
    return [facts + ", ".join(names) for facts, names in sorted(builds.items())]


def write_page(path, module, found):
    """`found`: {model: {row: result}}."""
    name, rows = path.stem, module.ROWS
    bundled = found.get(BUNDLED, {})
    lines = [f"# {module.TITLE}, row by row", "", "<!-- Written by bench/papers/run.py from bench/papers/rows; edit there. -->", "",
             module.INTRO.strip(), "",
             f"To repeat: `python3 bench/papers/run.py --paper {name}`; numbers with standard errors and differences: [{name}.json]({name}.json). "
             "± is the standard error, n the number of samples; MiB are those of keys, values and state, where the run recorded them. A verdict "
             "on a difference needs its 95 % confidence interval (Student's t, paired where both saw the same samples) on one side of 0; "
             "otherwise it is open. Probes without ± report means, and the verdict is on these.", "",
             "| row | paper | claim | paper's number | ours | verdict |", "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    lines += [line(row.name, row.source, row.claim, row.number, ours(row, bundled), verdict(row, bundled)) for row in rows]
    if on_beds := [row for row in rows if row.on_beds]:
        lines += ["", "## On the test beds", "", "The short rows on the two models of [models/beds](../../models/beds/README.md).", "",
                  *beds_table(on_beds, found)]  # fmt: skip
    notes = [(row.name, row.note) for row in rows if row.note]
    if notes:
        lines += ["", "## Notes", ""] + [f"- `{name_of_row}`: {note}" for name_of_row, note in notes]
    lines += ["", "## Commands", "", "`BOOKS` and `ESSAYS` are folders of texts; each command also gets `-m MODEL -t 2 --json FILE`.", ""]
    for row in rows:
        if row.commands:
            hours = f" (about {row.hours:g} hours of two cores; `--long`)" if row.hours else ""
            lines += [f"`{row.name}`{hours}:", "", command_lines(row)]
    if builds := found_by(rows, found):
        lines += ["## Builds", "", *builds]
    path.write_text("\n".join(lines).rstrip() + "\n")
    check_docs.wrap(path)


def in_words(facts):
    return facts if isinstance(facts, str) else ", ".join(map(str, facts.values()))
