"""docs/papers/PAPER.md from the rows and what was found of them."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_docs  # noqa: E402


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def command_lines(row):
    return "".join(f"    winnow {command}\n" for command in row.commands)


def ours(row, result):
    if result:
        return result["ours"]
    return "not run" if row.cannot else "not run yet"


def verdict(row, result):
    if result:
        return result["verdict"]
    return f"cannot be run here: {row.cannot}" if row.cannot else "not run yet: not resolved"


def write_page(path, module, found):
    name = path.stem
    lines = [f"# {module.TITLE}, row by row", "", "<!-- Written by bench/papers/run.py from bench/papers/rows; edit there. -->", "",
             module.INTRO.strip(), "",
             f"Again: `python3 bench/papers/run.py --paper {name}`; numbers with standard errors and differences: [{name}.json]({name}.json).", "",
             "| row | paper | claim | paper's number | ours | verdict |", "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in module.ROWS:
        result = found.get(row.name)
        lines.append("| " + " | ".join(map(cell, (row.name, row.source, row.claim, row.number, ours(row, result), verdict(row, result)))) + " |")
    notes = [(row.name, row.note) for row in module.ROWS if row.note]
    if notes:
        lines += ["", "## Notes", ""] + [f"- `{name_of_row}`: {note}" for name_of_row, note in notes]
    lines += ["", "## Commands", "", "`BOOKS` is the folder of texts; each command also gets `-m MODEL -t 2 --json FILE`.", ""]
    for row in module.ROWS:
        if row.commands:
            hours = f" (about {row.hours:g} hours of two cores; `--long`)" if row.hours else ""
            lines += [f"`{row.name}`{hours}:", "", command_lines(row)]
    builds = {f"- winnow {r['winnow']}; {in_words(r['machine'])}; {in_words(r['model'])}" for r in found.values() if r.get("winnow")}
    if builds:
        lines += ["## Found by", "", *sorted(builds)]
    path.write_text("\n".join(lines).rstrip() + "\n")
    check_docs.wrap(path)


def in_words(facts):
    return facts if isinstance(facts, str) else ", ".join(map(str, facts.values()))
