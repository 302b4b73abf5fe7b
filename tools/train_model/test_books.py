"""Books in clean text: chapters, removed title pages, whole books held out."""
import pytest

import books

LONG = "He went on. " * 200


def test_clean_chapters_and_books_held_out(tmp_path):
    (tmp_path / "a.txt").write_text(f"Book the First\n\n\nI\n\n{LONG}\nand on.\n\n\u201cYes.\u201d\n\n\nII\n\n{LONG}")
    (tmp_path / "b.txt").write_text(f"I\n\n{LONG}")
    train, held = books.split_books(tmp_path, ["b.txt"])
    assert [(b, h) for b, h, _ in train] == [("a", "I"), ("a", "II")] and [(b, h) for b, h, _ in held] == [("b", "I")]
    assert train[0][2].endswith("He went on. and on.\n\u201cYes.\u201d\n")
    with pytest.raises(SystemExit, match="c.txt"):
        books.split_books(tmp_path, ["c.txt"])
