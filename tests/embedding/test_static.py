import gzip
from functools import partial

import numpy as np
import pytest

import isoscope
from isoscope import InputError

VECTORS = {"the": [1, 0], "river": [0, 1], "bank": [2, 2], "Bank": [9, 9], ",": [5, 5], "well-known": [7, 7]}

embed = partial(isoscope.embed, pool="tokens")  # rows are tokens where a test does not choose another pooling


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{word} {x} {y}\n" for word, (x, y) in VECTORS.items()))
    return path


def words(store):
    return store.types.tolist()


def test_each_word_has_the_same_vector_in_any_context(glove):
    found = embed(glove, ["the river bank, the Bank", "well-known river"])
    assert words(found) == ["the", "river", "bank", ",", "the", "Bank", "well-known", "river"]
    expected = [VECTORS[word] for word in words(found)]
    np.testing.assert_array_equal(found.take(range(8)), np.array(expected, np.float32))


def test_words_are_looked_up_as_is_then_lowercased_then_split(glove):
    notes = []
    found = embed(glove, ["The RIVER (bank) zzz"], say=notes.append)
    assert words(found) == ["the", "river", "bank"]
    assert "3 tokens (50%) are not in the vocabulary of" in notes[-1]


def test_mean_pooling_gives_sentence_vectors(glove):
    np.testing.assert_allclose(embed(glove, ["the river", "bank"], pool="mean").take([0, 1]), [[0.5, 0.5], [2, 2]])


def test_texts_without_any_known_word_raise(glove):
    with pytest.raises(InputError, match=r"all 2 texts .* are empty"):
        embed(glove, ["zzz", "qqq"])


def test_other_vector_formats_are_supported(glove, tmp_path):
    with gzip.open(tmp_path / "glove.txt.gz", "wb") as file:
        file.write(glove.read_bytes())
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "vectors.npy", np.array(list(VECTORS.values()), np.float16))
    (tmp_path / "folder" / "words.txt").write_text("\n".join(VECTORS) + "\n")
    own = embed(glove, ["the river bank"]).take(range(3))
    for other in (tmp_path / "glove.txt.gz", tmp_path / "folder"):
        np.testing.assert_array_equal(embed(other, ["the river bank"]).take(range(3)), own)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"pool": "cls"}, 'use pool="tokens" or "mean"'), ({"layers": [3]}, "word vectors, which have no layers")],
)
def test_unsupported_options_of_word_vectors_raise(glove, options, said):
    with pytest.raises(InputError, match=said):
        embed(glove, ["the"], **options)


def test_vectors_without_words_raise(tmp_path):
    np.save(tmp_path / "bare.npy", np.eye(3))
    with pytest.raises(InputError, match="contains vectors without words"):
        embed(tmp_path / "bare.npy", ["the"])
