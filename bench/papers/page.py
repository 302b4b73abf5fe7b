"""docs/papers/PAPER.md from the rows and what was found of them."""


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
    builds = sorted({(r["winnow"], r["machine"], r["model"]) for r in found.values() if r.get("winnow")}, key=str)
    if builds:
        lines += ["## Found by", ""] + [f"- winnow {winnow}; {machine_text(machine)}; {model_text(model)}" for winnow, machine, model in builds]
    path.write_text("\n".join(lines).rstrip() + "\n")


def machine_text(machine):
    return machine if isinstance(machine, str) else ", ".join(map(str, machine.values()))


def model_text(model):
    return model if isinstance(model, str) else ", ".join(map(str, model.values()))
