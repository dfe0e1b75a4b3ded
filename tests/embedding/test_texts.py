import gzip
import json

import numpy as np
import pytest

from isoscope import InputError
from isoscope.embedding.texts import open_texts

ROWS = [('a first, "quoted" text', "x"), ("zweiter Text — ünï", "y"), ("third", "x")]


def texts(source, **more):
    return [each.text for each in open_texts(source, **more).read()]


def labels(source, **more):
    return [each.label for each in open_texts(source, **more).read()]


@pytest.fixture
def written(tmp_path):
    """The rows in every format, as `rows.csv`, `rows.tsv`, …"""
    import pandas as pd

    frame = pd.DataFrame(ROWS, columns=["sentence", "label"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "rows.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in [("sentence", "label"), *ROWS]))
    frame.to_parquet(tmp_path / "rows.parquet")
    lines = "".join(json.dumps({"sentence": text, "label": label}) + "\n" for text, label in ROWS)
    (tmp_path / "rows.jsonl").write_text(lines)
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.write(lines)
    return tmp_path


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.parquet", "rows.jsonl", "rows.jsonl.gz"])
def test_each_format_gives_the_same_texts_and_labels_twice(written, name):
    found = open_texts(written / name)
    for _ in range(2):
        assert [tuple(each) for each in found.read()] == [(*row, None) for row in ROWS]
    assert found.columns == {"text": "sentence", "labels": "label"}


def test_datasets_give_same_texts_with_class_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y"])})
    made = datasets.Dataset.from_dict(
        {"text": [text for text, _ in ROWS], "label": ["xy".index(label) for _, label in ROWS]}, features=features
    )
    assert [tuple(each)[:2] for each in open_texts(made).read()] == ROWS
    datasets.DatasetDict({"train": made, "test": made.select([1])}).save_to_disk(str(tmp_path / "kept"))
    assert texts(tmp_path / "kept", part="test") == [ROWS[1][0]]
    with pytest.raises(InputError, match="has the splits train, test: choose one"):
        open_texts(tmp_path / "kept")


def test_lines_paragraphs_or_the_entire_file(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\n\r\nthree \nfour")
    assert texts(path) == ["one", "two", "", "", "three ", "four"]
    assert texts(path, split="paragraph") == ["one\ntwo", "three \nfour"]
    assert texts(path, split="file") == ["one\ntwo\n\n\nthree \nfour"]


def test_any_iterable_of_strings_and_sequence_of_labels():
    assert texts(word for word in ("a", "b")) == ["a", "b"]
    assert texts(np.array(["a", "b"])) == ["a", "b"]
    assert labels(["a", "b"], labels=np.array([3, 4])) == [3, 4]
    assert texts(["a", None, float("nan")]) == ["a", "", ""]


def test_columns_are_found_by_usual_or_given_names(written):
    path = written / "odd.csv"
    path.write_text("prompt,answer\nwhy,because\n")
    with pytest.raises(InputError, match="none has a common name for texts: choose one"):
        open_texts(path)
    assert texts(path, text="answer") == ["because"]
    assert labels(path, text="answer", labels="prompt") == ["why"]
    with pytest.raises(InputError, match="no column nothing for text: the columns are prompt, answer"):
        open_texts(path, text="nothing")


def test_csv_labels_are_integers_if_written_as_integers(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,1\nb,-2\nc,007\nd,\n")
    assert labels(tmp_path / "a.csv") == [1, -2, "007", None]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"text\tlabel\na\tb\tc\n", "a.tsv", "line 2 has 3 columns, but the first line has 2"),
        (b'{"text": "a"}\n[1]\n', "a.jsonl", "line 2 is a JSON list"),
        (b'{"text": "a"}\n{"text": 5}\n', "a.jsonl", "line 2: text is a int"),
        (b"{\n", "a.jsonl", "line 1 is not JSON"),
        (b"\xff\xfe\n", "a.txt", "line 1 is not valid UTF-8"),
        (b"text,text\na,b\n", "a.csv", "two columns named 'text'"),
        (b"PAR1 and then nothing", "a.parquet", "cannot be read as Parquet"),
        (b"", "a.csv", "is empty"),
    ],
)
def test_errors_name_the_line(tmp_path, content, name, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        texts(tmp_path / name)


@pytest.mark.parametrize("given", [["a"], ["a", "b", "c"]])
def test_the_number_of_labels_must_match(given):
    with pytest.raises(InputError, match=f"labels has {len(given)} entries"):
        texts(["a", "b"], labels=given)


def test_invalid_sources_of_texts_are_rejected(tmp_path):
    for source, words in ((5, "is a int"), (b"abc", "is a bytes"), ([1], "text 0 is a int")):
        with pytest.raises(InputError, match=words):
            texts(source)
    with pytest.raises(InputError, match="does not exist"):
        open_texts(tmp_path / "none.txt")
    (tmp_path / "plain.txt").write_text("a\n")
    with pytest.raises(InputError, match=r"which has no column text: need a \.csv"):
        open_texts(tmp_path / "plain.txt", text="text")


def test_an_unreachable_hub_is_reported_with_advice(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(InputError, match=r"no dataset of this name could be loaded .* or pass a file"):
        open_texts("owner/name")
