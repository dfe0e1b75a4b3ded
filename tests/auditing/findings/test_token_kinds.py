import gzip
from pathlib import Path

import numpy as np
import pytest

from isoscope.auditing.findings.frequency import KINDS, are_words, token_kinds

GLOVE = Path(__file__).parents[3] / "shared/data/glove6B_100d_wink/glove.6B.100d.wink-top40k.txt.gz"

STYLES = {
    "BERT": {
        "[CLS]": "special",
        "[SEP]": "special",
        "[unused12]": "special",
        "swim": "word",
        "##ming": "continuation",
        "##19": "number",
        "1984": "number",
        ",": "symbol",
        "##!": "symbol",
        "##": "symbol",
        "été": "word",
        "##水": "continuation",
    },
    "byte-level": {
        "<|endoftext|>": "special",
        "<|im_start|>": "special",
        "<s>": "special",
        "Ġswim": "word",
        "ming": "continuation",
        "Ġ1984": "number",
        "19": "number",
        "Ċ": "symbol",
        "Ġ": "symbol",
        ",": "symbol",
        "âĢĵ": "symbol",  # an en dash
        "ĠÃ©tÃ©": "word",
        "Ã©": "continuation",
        "Ã": "symbol",  # half of a character
    },
    "SentencePiece": {
        "<s>": "special",
        "</s>": "special",
        "<extra_id_0>": "special",
        "<0x0A>": "symbol",
        "▁swim": "word",
        "ming": "continuation",
        "▁1984": "number",
        "▁": "symbol",
        ",": "symbol",
    },
    "words": {
        "swim": "word",
        "don't": "word",
        "1984": "number",
        "3.14": "number",
        ",": "symbol",
        "<unk>": "special",
        "covid-19": "word",
        "ming": "word",
    },
}


@pytest.mark.parametrize("style", STYLES)
def test_kinds_in_each_style(style):
    told = {name: KINDS[code] for name, code in zip(STYLES[style], token_kinds(list(STYLES[style])), strict=True)}
    assert told == STYLES[style]


def test_order_and_repeats_do_not_matter(rng):
    tokens = np.asarray(list(STYLES["BERT"]))
    order = rng.permutation(np.repeat(np.arange(len(tokens)), 3))
    np.testing.assert_array_equal(token_kinds(tokens[order]), token_kinds(tokens)[order])


def test_marker_inside_the_text_does_not_set_the_style():
    words = [f"word{i}x" for i in range(200)]
    assert [KINDS[code] for code in token_kinds([*words, "▁"])] == ["word"] * 200 + ["symbol"]


def test_empty_list_has_no_kinds():
    assert token_kinds([]).shape == (0,)
    assert not are_words([])


@pytest.mark.parametrize("entries", [np.arange(5), ["two words", "three more words"], [None, None], [""]])
def test_entries_that_are_not_words(entries):
    assert not are_words(entries)


def test_word_vectors_are_words():
    if not GLOVE.is_file():
        pytest.skip("../shared has no GloVe vectors")
    with gzip.open(GLOVE, "rt", encoding="utf-8") as lines:
        words = [line.split(" ", 1)[0] for line, _ in zip(lines, range(5000), strict=False)]
    kinds = np.bincount(token_kinds(words), minlength=len(KINDS)) / len(words)
    assert are_words(words)
    assert kinds[KINDS.index("word")] > 0.9
    assert kinds[KINDS.index("continuation")] == 0
