"""Books as plain chapters: no header, no licence, no table of contents, one line per paragraph.

Two formats: Project Gutenberg's original files, and clean text with two line feeds between
paragraphs and three between chapters (Standard Ebooks' spine).
"""
import pathlib
import re

# A heading paragraph: "CHAPTER XII", "Chapter 3", "CHAPTER 41. Moby Dick.", "ADVENTURE IV. THE ...", "VII. THE ADVENTURE ..."
HEADING = re.compile(r"^(?:CHAPTER|Chapter|ADVENTURE) +(?:[IVXLC]+|\d+)\b.{0,80}$|^[IVX]+\. THE [A-Z' -]+$")
SHORTEST = 1500  # characters; a shorter "chapter" is an entry of a table of contents


def clean(raw):
    text = raw.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    start = re.search(r"\*\*\* ?START OF.*?\*\*\*", text)
    end = re.search(r"\*\*\* ?END OF|End of (?:the )?Project Gutenberg", text)
    text = text[start.end() if start else 0:end.start() if end else len(text)]
    paragraphs = (re.sub(r"\s+", " ", p).strip().replace("_", "") for p in re.split(r"\n\s*\n", text))
    return [p for p in paragraphs if p]


def chapters(path):
    """[(heading, text)] in order; the text starts with its heading and ends with a newline."""
    found = []
    for p in clean(pathlib.Path(path).read_bytes()):
        if HEADING.match(p):
            found.append((p, []))
        if found:
            found[-1][1].append(p)
    joined = [(h, "\n".join(ps) + "\n") for h, ps in found]
    return [(h, t) for h, t in joined if len(t) >= SHORTEST]


def split(folder, held_out):
    """Training and held-out text, each [(book, heading, text)]. held_out: file name -> 1-based
    chapter numbers."""
    train, held = [], []
    for path in sorted(pathlib.Path(folder).glob("*.txt")):
        wanted = set(held_out.get(path.name, ()))
        for number, (heading, text) in enumerate(chapters(path), 1):
            (held if number in wanted else train).append((path.stem, heading, text))
            wanted.discard(number)
        if wanted:
            raise SystemExit(f"{path}: the configuration holds out chapters {sorted(wanted)}, which it does not have")
    if not train:
        raise SystemExit(f"{folder}: no books (*.txt) found")
    return train, held


def clean_chapters(path):
    """[(heading, text)] of a book in clean text, without title pages and other short parts."""
    found = []
    for part in pathlib.Path(path).read_text(encoding="utf-8").split("\n\n\n"):
        paragraphs = [p for p in (re.sub(r"\s+", " ", p).strip() for p in part.split("\n\n")) if p]
        text = "\n".join(paragraphs) + "\n"
        if len(text) >= SHORTEST:
            found.append((paragraphs[0], text))
    return found


def split_books(folder, held_out):
    """Training and held-out text of clean books, each [(book, heading, text)]. held_out: file names
    of whole books."""
    train, held, missing = [], [], set(held_out)
    for path in sorted(pathlib.Path(folder).glob("*.txt")):
        (held if path.name in missing else train).extend((path.stem, *c) for c in clean_chapters(path))
        missing.discard(path.name)
    if missing:
        raise SystemExit(f"{folder}: the configuration holds out {sorted(missing)}, which are not there")
    return train, held
