"""Word vectors in their published formats."""

import pickle

import numpy as np
import pytest

from isoscope import InputError
from isoscope._core.errors import ShapeError
from isoscope.stores.open import open_store


def words(tmp_path, text, name="a.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path):
    store = open_store(path)
    return store.text.tolist(), np.concatenate(list(store.chunks())).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the 1 2\nof 3 4\n", (["the", "of"], [[1, 2], [3, 4]])),
        ("2 2\nthe 1 2 \nof 3 4 \n", (["the", "of"], [[1, 2], [3, 4]])),
        ("the 1 2\n. . . 3 4\nat name@x.com 5 6\n", (["the", ". . .", "at name@x.com"], [[1, 2], [3, 4], [5, 6]])),
        ("the\t1\t2\nof\t3\t4", (["the", "of"], [[1, 2], [3, 4]])),
        ('" 1 2\n"" 3 4\n', (['"', '""'], [[1, 2], [3, 4]])),
        ("a\u00a0b 1 2\n\u0085 3 4\n", (["a\u00a0b", "\u0085"], [[1, 2], [3, 4]])),
        (b"\xff 1 2\nx 3 4\n", (["\\xff", "x"], [[1, 2], [3, 4]])),
        ("the 1e-3 -2E2\nof +3 .5\n", (["the", "of"], [[np.float32(1e-3), -200], [3, 0.5]])),
        ("1 0.5 0.5\n2 0.5 0.5\n", (["1", "2"], [[0.5, 0.5], [0.5, 0.5]])),
        ("a\rb 1 2\nc 3 4\n", (["a\rb", "c"], [[1, 2], [3, 4]])),
        ("the  1  2\nof   3 \t4  \n", (["the", "of"], [[1, 2], [3, 4]])),
        ("the 1 2\nof  3 4\n. .  3  4\n", (["the", "of", ". ."], [[1, 2], [3, 4], [3, 4]])),
        ("the 1 2\rof 3 4\r", (["the", "of"], [[1, 2], [3, 4]])),
        ("the 1 2\n\nof 3 4\n\n", (["the", "of"], [[1, 2], [3, 4]])),
        ("the 1 2\nroute 66 3 4\n", (["the", "route 66"], [[1, 2], [3, 4]])),
        ("route 66 1 2\nof 3 4\nin 5 6\n", (["route 66", "of", "in"], [[1, 2], [3, 4], [5, 6]])),
    ],
)
def test_accepted_text_formats(text, expected, tmp_path):
    assert read(words(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\nof 3 4\nin 5\n", "line 3 has 1 number after the word: need 2, as in the first line"),
        ("the 1 2 3\nof 3  4\nin 5 6 7\n", "line 2 has 2 numbers after the word: need 3, as in the first line"),
        ("the 1 2\nof 3 x4\n", "line 2: 'x4' is not a number; need a word and 2 numbers"),
        ("2 2\nthe 1 2\n\nof 3 4y\n", "line 4: '4y' is not a number"),
        ("a sentence of words\n", "line 1: 'a sentence of words' is not a word followed by a vector"),
        ("car auto 3.92\nsun moon 1.5\n", "line 1: 'car auto 3.92' is not a word followed by a vector"),
        ("0.5 1.5 2.5\n1.0 2.0 3.0\n", r"contains numbers but no words: convert it with np\.save"),
        ("3 2\nthe 1 2\nof 3 4\n", "declares 3 rows, but the file has 2"),
        ("1 2\nthe 1 2\nof 3 4\n", "declares 1 row, but the file has 2"),
        ("0 2\n", "has no rows"),
        ("2 0\nthe\nof\n", "has no columns"),
        ("the 0.5 2.5\nof 0.1 0.2 0.3\n", "line 1 has 2 numbers after the word, but other lines have 3"),
        ("\nthe 1 2\n" + "of 1 2 3\n" * 3, "line 2 has 2 numbers after the word, but other lines have 3"),
        ("the 1 2\nof 3 4\nin 0.5 6 7\n", "line 3 has 3 numbers after the word: need 2, as in the first line"),
        ("2 2\nthe 0.1 0.2 0.3\nof 0.4 0.5 0.6\n", "line 2 has 3 numbers after the word: need 2"),
        ("9" * 20 + " 2\nthe 1 2\n", "line 1 .*has 1 number after the word, but other lines have 2"),
    ],
)
def test_malformed_text_raises(text, message, tmp_path):
    with pytest.raises(InputError, match=rf"a\.txt.*{message}"):
        read(words(tmp_path, text))


def test_rows_before_a_bad_line_can_be_read(tmp_path):
    store = open_store(words(tmp_path, "the 1 2\nof 3 4\nin 5 x\n"))
    assert store.take([1, 0]).tolist() == [[3, 4], [1, 2]]
    with pytest.raises(InputError, match="line 3: 'x'"):
        store.take([2])


def binary(rows, newline=b"", head=None):
    dim = len(rows[0][1])
    out = head or f"{len(rows)} {dim}\n".encode()
    return out + b"".join(w.encode() + b" " + np.asarray(v, "<f4").tobytes() + newline for w, v in rows)


@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_binary_words_with_values_that_look_like_whitespace(tmp_path, newline):
    tricky = np.frombuffer(b"    \n\n\n\n", "<f4")
    rows = [("the", tricky), ("naïve", [1, 2]), ("x", tricky[::-1])]
    store = open_store(words(tmp_path, binary(rows, newline), "a.bin"))
    assert store.text.tolist() == ["the", "naïve", "x"]
    np.testing.assert_array_equal(
        store.take([2, 0, 1, 1]), np.stack([tricky[::-1], tricky, [1, 2], [1, 2]]).astype("f4")
    )
    assert store.column("text", [2, 2]).tolist() == ["x", "x"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (binary([("a", [1, 2])], head=b"5 2\n"), "5 words of 2 dimensions do not fit"),
        (binary([("a" * 19, [1, 2]), ("b", [1, 2])], head=b"3 2\n"), "is truncated in row 2 of 3"),
        (b"hello world\n", "not a word2vec binary file"),
        (b"0 2\n", "has no rows"),
        (b"1 1\n" + b"x" * 10_000, "is truncated in row 0 of 1"),
        (binary([("a", [1, 2])] * 3, head=b"2 2\n"), "has 10 bytes after the 2 rows of 2 dimensions"),
        (binary([("a", [1, 2, 3])] * 9, head=b"9 2\n"), "bytes after the 9 rows of 2 dimensions|is truncated in row"),
        (binary([("a", [1, 2])]) + b"x", "has 1 byte after the 1 row of 2 dimensions"),
    ],
)
def test_malformed_binary_raises(data, message, tmp_path):
    with pytest.raises(InputError, match=rf"a\.bin.*{message}"):
        list(open_store(words(tmp_path, data, "a.bin")).chunks())


@pytest.fixture
def word_folder(tmp_path):
    np.save(tmp_path / "vectors.npy", np.arange(6, dtype=np.float16).reshape(3, 2))
    (tmp_path / "words.txt").write_bytes("\ufeffriver\r\nbank\r\nà propos\r\n".encode())
    (tmp_path / "README.md").write_text("from somewhere")
    return tmp_path


def test_folder_of_an_array_and_words_is_a_store_of_words(word_folder):
    store = open_store(word_folder)
    assert (store.dtype, store.columns) == (np.float16, {"text": "word"})
    assert store.text.tolist() == ["river", "bank", "à propos"]
    np.testing.assert_array_equal(store.take([2, 0]), [[4, 5], [0, 1]])
    assert [file.name for file in store.files] == ["vectors.npy", "words.txt"]
    other = pickle.loads(pickle.dumps(store))  # as a worker process opens it
    assert other.column("text", [1]).tolist() == ["bank"]
    assert open_store(word_folder, frequency="1/rank").frequency.tolist() == [1, 1 / 2, 1 / 3]
    assert open_store(word_folder, labels=["x", "y", "x"]).labels.tolist() == ["x", "y", "x"]


def test_number_of_words_must_match_the_array(word_folder):
    (word_folder / "words.txt").write_text("river\nbank\n")
    with pytest.raises(ShapeError, match=r"words\.txt has 2 words but vectors\.npy has 3 rows: need one word per row"):
        open_store(word_folder)
