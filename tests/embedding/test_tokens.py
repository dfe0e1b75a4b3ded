import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoscope import InputError
from isoscope.embedding.texts import open_texts
from isoscope.embedding.tokens import Spool, Tokens, Windows, batches


class Letters:
    """A tokenizer with one token per letter; token 1 precedes a window and token 2 follows it."""

    before, after = [1], [2]
    unknown, missed = ord("?"), 0

    def read(self, texts):
        return [
            Tokens(np.array([ord(mark) for mark in text], int), np.arange(len(text)), np.arange(len(text)) + 1)
            for text in texts
        ]


def filled(folder, texts, windows=None, **more):
    spool = Spool(folder)
    spool.fill(open_texts(texts, **more), Letters(), windows or Windows(6, 4), lambda *_: None)
    return spool


def everything(spool, most_tokens=10**6, whole=False):
    return [spool.block(*cut) for cut in spool.blocks(most_tokens, whole=whole)]


# how texts are cut


@given(n=st.integers(1, 200), room=st.integers(1, 40), data=st.data(), causal=st.booleans())
def test_every_token_is_a_row_from_one_window(n, room, data, causal):
    step = data.draw(st.integers(1, room))
    cuts = Windows(room, step, causal=causal).split(n, room)
    rows = [place for _, _, first, last in cuts for place in range(first, last)]
    assert rows == list(range(n))
    assert all(start <= first <= last <= stop and stop - start <= room for start, stop, first, last in cuts)


def test_overlapping_token_is_taken_from_window_with_most_context():
    assert Windows(6, 2).split(8, 4) == [(0, 4, 0, 3), (2, 6, 3, 5), (4, 8, 5, 8)]
    assert Windows(6, 2, causal=True).split(8, 4) == [(0, 4, 0, 4), (2, 6, 4, 6), (4, 8, 6, 8)]


def test_only_first_or_last_window():
    assert Windows(6, 4, only="first").split(9, 4) == [(0, 4, 0, 4)]
    assert Windows(6, 4, only="last").split(9, 4) == [(5, 9, 5, 9)]


# what is kept


def test_texts_tokens_and_labels_are_returned(tmp_path):
    spool = filled(tmp_path, ["abcdefghi", "", "xyz"], labels=["long", None, "short"])
    (block,) = everything(spool)
    assert block.documents.tolist() == [0, 0, 0, 2]
    assert block.lengths.tolist() == [6, 6, 3, 5]
    assert block.rows.tolist() == [4, 4, 1, 3]
    kept = block.tokens["kept"].astype(bool)
    assert "".join(map(chr, block.tokens["ids"][kept])) == "abcdefghixyz"
    assert block.tokens["positions"][kept].tolist() == [*range(9), 0, 1, 2]
    assert block.tokens["ids"][:6].tolist() == [1, *map(ord, "abcd"), 2]
    assert [spool.text(i) for i in range(3)] == ["abcdefghi", "", "xyz"]
    assert [spool.value("label", i) for i in range(3)] == ["long", None, "short"]
    assert spool.kinds == {"label": "str"}


def test_special_tokens_are_rows_on_request(tmp_path):
    (block,) = everything(filled(tmp_path, ["abcde"], Windows(6, 4, special=True)))
    assert block.tokens["kept"].all()
    assert block.tokens["positions"].tolist() == [-1, 0, 1, 2, 3, -1, -1, 4, -1]


def test_tokens_and_texts_are_counted(tmp_path):
    spool = filled(tmp_path, ["ab?", "  ", "", "abcdefgh"], Windows(6, 4, only="first"))
    counts = spool.counts
    assert (counts.texts, counts.empty, counts.tokens, counts.unknown) == (4, 2, 11, 1)
    assert (counts.longer, counts.unread) == (1, 4)
    assert spool.frequency[ord("a")] == 2
    assert spool.frequency[ord("h")] == 1  # of all texts, read or not


@pytest.mark.parametrize(
    ("labels", "kind"), [([1, 2], "int"), ([1, 2.5], "float"), ([1, "b"], "str"), ([True, 0], "int")]
)
def test_labels_are_converted_to_one_type(tmp_path, labels, kind):
    spool = filled(tmp_path, ["a", "b"], labels=labels, ids=labels)
    assert spool.kinds == {"label": kind, "id": kind}
    expected = [{"int": int, "float": float, "str": str}[kind](label) for label in labels]
    assert [spool.value("id", i) for i in range(2)] == expected


def test_texts_without_an_id_are_counted_if_others_have_one(tmp_path):
    for i, (ids, count) in enumerate((([7, None], 1), ([None, float("nan")], 0), ([7, 8], 0))):
        (tmp_path / str(i)).mkdir()
        assert filled(tmp_path / str(i), ["a", "b"], ids=ids).counts.without_id == count


def test_checksum_depends_on_texts_labels_and_ids(tmp_path):
    digests = set()
    cases = [(["ab", "c"], [0, 1], None), (["a", "bc"], [0, 1], None), (["ab", "c"], [1, 1], None)]
    cases += [(["ab", "c"], [0, 1], [5, 6]), (["ab", "c"], [0, 1], [6, 5])]
    for i, (texts, labels, ids) in enumerate(cases):
        (tmp_path / str(i)).mkdir()
        digests.add(filled(tmp_path / str(i), texts, labels=labels, ids=ids).digest)
    assert len(digests) == len(cases)


def test_lone_surrogates_are_accepted(tmp_path):
    assert filled(tmp_path, ["a\ud800b"]).text(0) == "a\ud800b"


@pytest.mark.parametrize(("texts", "words"), [([], "no text"), (["", " "], "all 2 texts .* are empty")])
def test_empty_input_raises(tmp_path, texts, words):
    with pytest.raises(InputError, match=words):
        filled(tmp_path, texts)


# blocks and choices


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=30), most=st.integers(1, 60), whole=st.booleans())
def test_blocks_hold_every_window_once(tmp_path_factory, lengths, most, whole):
    spool = filled(tmp_path_factory.mktemp("texts"), ["x" * n for n in lengths])
    cuts = spool.blocks(most, whole=whole)
    assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts[:-1])]
    blocks = [spool.block(*cut) for cut in cuts]
    assert sum(int(block.rows.sum()) for block in blocks) == sum(lengths)
    for block in blocks:
        fits = int(block.lengths.sum()) <= most
        assert fits or len(set(block.documents) if whole else block.lengths) == 1
    if whole:
        documents = [number for block in blocks for number in set(block.documents.tolist())]
        assert len(documents) == len(set(documents))


def test_sample_has_the_requested_rows_in_text_order(tmp_path):
    spool = filled(tmp_path, ["abcde"] * 40)
    spool.choose(33, 0, whole=False)
    (block,) = everything(spool)
    assert int(block.tokens["kept"].sum()) == int(block.rows.sum()) == spool.rows == 33
    assert (np.diff(block.documents) >= 0).all()
    assert spool.counts.left_out == 200 - 33
    chosen = block.documents.tolist()
    spool.choose(33, 1, whole=False)
    assert everything(spool)[0].documents.tolist() != chosen
    spool.choose(33, 0, whole=False)
    assert everything(spool)[0].documents.tolist() == chosen


def test_a_sample_of_texts_has_at_most_max_tokens(tmp_path):
    spool = filled(tmp_path, ["abcde"] * 40)
    spool.choose(33, 0, whole=True)  # each has 5 tokens and 4 special ones, in two windows
    (block,) = everything(spool, whole=True)
    assert len(set(block.documents.tolist())) == 3
    with pytest.raises(InputError, match="max_tokens is 3"):
        spool.choose(3, 0, whole=True)


def test_max_tokens_above_the_total_keeps_all(tmp_path):
    spool = filled(tmp_path, ["abcde"] * 4)
    spool.choose(1000, 0, whole=False)
    assert spool.rows == 20
    assert spool.counts.left_out == 0


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60), most=st.integers(1, 200))
def test_batches_contain_every_window_once_within_the_limit(lengths, most):
    lengths = np.array(lengths)
    found = list(batches(lengths, most))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= most for batch in found)
