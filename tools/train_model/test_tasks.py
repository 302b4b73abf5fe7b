"""Tokenizer, cleaning and task generators on a small invented text, and on the prepared data if it
exists."""
import collections
import random
import re

import numpy as np
import pytest

import books
import documents
import tasks
import tokenizer
import wordings as W

rng = random.Random(5)
TEXT = "".join(f" The {rng.choice(W.ADJECTIVES)} {rng.choice(W.NOUNS)} was near the {rng.choice(W.NOUNS)}, he said."
               + ("\n" if i % 7 == 6 else "") for i in range(3000))
COUNTS = collections.Counter(tokenizer.PIECE.findall(TEXT + "".join(W.vocabulary())))
TOK = tokenizer.Tokenizer(tokenizer.train(COUNTS, 1024 - 259))
CORPUS = documents.Corpus(TOK.encode(TEXT), TOK)
TRAIN, HELD = tasks.Sampler(TOK, CORPUS), tasks.Sampler(TOK, CORPUS, held=True)
TASKS = sorted(TRAIN.makers)


def test_merges_follow_frequency():
    counts = {"aab": 4, "ab": 3, "12": 100, "b\n": 90}
    assert tokenizer.train(counts, 2) == [("a", "b"), ("a", "ab")]  # "ab" 7 times; no digits, no line ends


def test_text_survives_the_tokenizer():
    for text in ("Hello  world\n\n it's 12345 caf\u00e9 \u2014 \u201cyes\u201d \U0001f600 ", TEXT[:500]):
        assert TOK.decode(TOK.encode(text)) == text
    assert len(TOK.encode("40917")) == 5


def test_weights_go_with_the_parts():
    ids, weights = TOK.encode_weighted([(" The key is", 0.5), (" 42", 0.0), (".", 1.0)])
    assert ids == TOK.encode(" The key is 42.")
    assert weights[-1] == 1.0 and weights[-4:-1] == [0.0] * 3 and set(weights[:-4]) == {0.5}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", [60, 300, 1000])
def test_documents_fit_and_answers_are_where_they_are_said_to_be(task, size):
    made = 0
    for n in range(20):
        piece = TRAIN.makers[task](tasks.generator(1, task, size, n), size)
        if piece is None:
            continue
        made += 1
        assert len(piece.ids) == len(piece.weights) <= size
        assert piece.ids[0] == tokenizer.END
        for a in piece.answers:
            assert 0 <= a.start < a.end <= len(piece.ids) and 0 <= a.depth <= 1
            if task not in ("quote", "repeat", "cycle"):
                assert all(w == tasks.ANSWER for w in piece.weights[a.start:a.end])
    assert made > 0 or size == 60


@pytest.mark.parametrize("task", [t for t in TASKS if t not in ("repeat", "cycle")])
def test_an_engine_makes_the_same_tokens_of_the_whole_text(task):
    for n in range(10):
        ids = (TRAIN.makers[task](tasks.generator(2, task, n), 500) or TRAIN.task_book(rng, 100)).ids
        again, stretch = [], []
        for i in [*ids, tokenizer.END]:
            if i < len(tokenizer.SPECIAL):
                again += TOK.encode(TOK.decode(stretch)) + [i]
                stretch = []
            else:
                stretch.append(i)
        assert again[:-1] == ids


def test_needle_answers_are_in_the_document_at_the_depth_asked_for():
    for sampler in (TRAIN, HELD):
        for n in range(40):
            depth = (n + 0.5) / 40
            piece = sampler.task_needle(tasks.generator(3, n), 1000, n_facts=5, n_questions=1, depth=depth)
            (a,) = piece.answers
            assert len(piece.ids) == 1000
            said = TOK.decode(piece.ids[a.start:a.end]).strip()
            document = TOK.decode(piece.ids[:a.start])
            assert said in document
            assert abs(a.depth - depth) < 0.15


def test_two_hop_and_lists_can_be_answered_from_the_text():
    for n in range(30):
        piece = TRAIN.task_two_hop(tasks.generator(4, n), 900, chain=True)
        for a in piece.answers:
            thing, value = TOK.decode(piece.ids[a.start:a.end]).strip().split(", ", 1)
            sentences = TOK.decode(piece.ids[:a.start]).split(".")
            assert any(thing in s and value in s for s in sentences)
        piece = TRAIN.task_multi_value(tasks.generator(5, n), 900)
        (a,) = piece.answers
        document, at = TOK.decode(piece.ids[:a.start]), 0
        for value in TOK.decode(piece.ids[a.start:a.end]).strip().split(", "):
            assert value in document


def test_counts_are_right():
    for n in range(20):
        piece = TRAIN.task_count(tasks.generator(6, n), 400)
        text = TOK.decode(piece.ids)
        listed = re.search(r"List: (.*?)\.", text)[1].split(", ")
        for a in piece.answers:
            before = TOK.decode(piece.ids[:a.start])
            asked = re.findall("|".join(rf"\b{w}\b" for w in set(listed)), before)[-1]  # the latest question's
            assert str(listed.count(asked)) == TOK.decode(piece.ids[a.start:a.end]).strip()


def test_quotes_repeat_the_text():
    for n in range(20):
        piece = TRAIN.task_quote(tasks.generator(7, n), 900)
        for a in piece.answers:
            quote = TOK.decode(piece.ids[a.start - tasks.QUOTE_FREE:a.end])
            assert quote in TOK.decode(piece.ids[:a.start - tasks.QUOTE_FREE])


@pytest.mark.parametrize("length", [256, 512, 2048])
def test_sequences_are_exact_weighted_and_repeatable(length):
    mixture = {t: 1.0 for t in TASKS}
    for n in range(20):
        ids, w, answers = TRAIN.sequence(tasks.generator(8, length, n), length, mixture)
        again = TRAIN.sequence(tasks.generator(8, length, n), length, mixture)
        assert np.array_equal(ids, again[0]) and np.array_equal(w, again[1])
        assert len(ids) == len(w) == length + 1 and (w >= 0).all() and ids[0] == tokenizer.END
        for a in answers:
            if a.task not in ("quote", "repeat", "cycle"):
                assert (w[a.start:a.end] >= 2.0).all()
    assert not np.array_equal(ids, TRAIN.sequence(tasks.generator(9, length, n), length, mixture)[0])


def test_answers_make_their_share():
    piece = TRAIN.task_needle(tasks.generator(10), 1000, n_facts=3, n_questions=2)
    _, w, answers = TRAIN.weigh(piece)
    answered = sum(w[a.start:a.end + 1].sum() for a in answers)
    assert answered / w.sum() == pytest.approx(TRAIN.share, rel=0.02)


def test_held_out_words_and_patterns_stay_out_of_training():
    keys = {*W.NOUNS_HELD, *W.ADJECTIVES_HELD, *W.FIRST_NAMES_HELD, *W.LAST_NAMES_HELD} - set(W.WORDS)  # some are values
    for name in [n for n in vars(W) if n.endswith("_HELD")]:
        assert not set(map(str, getattr(W, name))) & set(map(str, getattr(W, name[:-5]))), name

    def document(sampler):
        made = [sampler.task_needle(tasks.generator(11, n), 600) for n in range(60)]
        return "".join(TOK.decode(piece.ids) for piece in made if piece)

    text = document(TRAIN)
    assert not [w for w in keys if f" {w} " in text]
    text = document(HELD)
    assert len([w for w in keys if f" {w} " in text]) > 10


def test_chapters_leave_out_headers_and_contents(tmp_path):
    body = "It was a dark night. " * 100
    raw = ("\ufeffThe Project Gutenberg EBook\r\n*** START OF THIS BOOK ***\r\n\r\nContents\r\n\r\nChapter 1\r\n\r\nChapter 2\r\n\r\n"
           f"Chapter 1\r\n\r\n{body}\r\n\r\nA wrapped\r\nline.\r\n\r\nChapter 2\r\n\r\n{body}\r\n\r\n*** END OF THIS BOOK ***\r\nlicence")
    (tmp_path / "b.txt").write_bytes(raw.encode())
    train, held = books.split(tmp_path, {"b.txt": [2]})
    assert [h for _, h, _ in train] == ["Chapter 1"] and [h for _, h, _ in held] == ["Chapter 2"]
    assert train[0][2].endswith("A wrapped line.\n") and "licence" not in held[0][2]
    with pytest.raises(SystemExit):
        books.split(tmp_path, {"b.txt": [3]})
