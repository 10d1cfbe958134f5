"""Edits, words and spans, compared with what is counted by hand."""

from __future__ import annotations

import itertools

from edgekit.host.compiler.tasks.hits import Hits, edits, overlap, words_of


def _by_recursion(right: str, found: str) -> int:
    if not right or not found:
        return len(right) + len(found)
    if right[0] == found[0]:
        return _by_recursion(right[1:], found[1:])
    pairs = (right[1:], found), (right, found[1:]), (right[1:], found[1:])
    return 1 + min(_by_recursion(*pair) for pair in pairs)


def test_edits_are_the_fewest():
    texts = ["".join(each) for n in range(4) for each in itertools.product("ab", repeat=n)]
    for right, found in itertools.product(texts, texts):
        assert edits(right, found) == _by_recursion(right, found)
    assert edits(["the", "cat", "sat"], ["a", "cat"]) == 2


def test_words_are_compared_without_case_and_punctuation():
    assert words_of("Don\u2019t stop \u2013 'twas ' 3.5\u00b0 \u00c9t\u00e9!") == [
        "don't", "stop", "'twas", "3", "5", "\u00e9t\u00e9",
    ]  # fmt: skip


def test_spans_are_compared_in_frames():
    assert overlap([(0, 1)], [(0.5, 1.25)]) == Hits(50, 25, 50)
    assert overlap([], []).f1 == 0 and Hits(1, 1, 1).f1 == 0.5
