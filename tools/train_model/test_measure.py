"""The prompts and scores of measure.py, on a small text."""
import argparse

import documents
import measure
from test_tasks import TEXT, TOK


def test_every_prompt_and_window_ends_before_what_is_asked_for():
    args = argparse.Namespace(lengths=[256], documents=1, task_lengths=[512], task_documents=1, window=256, windows=3, quote_windows=1)
    corpus = documents.Corpus(TOK.encode(TEXT), TOK)
    asked = list(measure.prompts(args, TOK, corpus))
    assert {key[0] for key, *_ in asked} == {"needle", *measure.TASKS}
    for key, ids, wanted, _ in asked:
        assert len(ids) + len(TOK.encode(wanted)) <= key[2], key
        assert wanted.strip(), key
    scored = list(measure.windows(args, TOK, corpus))
    assert {key[0] for key, *_ in scored} == {"text", "quote"}
    for key, ids, marked in scored:
        assert all(0 < start < end <= len(ids) for start, end in marked), key
