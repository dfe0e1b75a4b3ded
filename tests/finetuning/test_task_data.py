"""Tasks: the splits contain all rows, stratified by class; invalid files give a one-line error."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from isoscope import InputError
from isoscope.finetuning.task_data import GLUE_NAMES, Split, Task, read_custom_task, read_glue, stratified_sample

DATA = Path(__file__).parents[3] / "shared" / "data"


def rows_of(name: str) -> list[str]:
    """Return a few lines of a task's file in its own format."""
    forms = {
        "cola": ["", "gj04\t1\t\tIt is good .", "gj04\t0\t*\tIt good is ."],
        "mrpc": ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t1\t2\tA "b\tB', "0\t1\t2\tC\tD"],
        "rte": ["index\tsentence1\tsentence2\tlabel", "0\tA\tB\tnot_entailment", "1\tC\tD\tentailment"],
        "qnli": ["index\tquestion\tsentence\tlabel", "0\tA\tB\tnot_entailment", "1\tC\tD\tentailment"],
        "sst2": ["sentence\tlabel", "good \t1", "bad \t0"],
        "sst5": ["sentence\tlabel", "good\t4", "bad\t0"],
        "snli": ["label\tsentence1\tsentence2", "neutral\tA\tB", "entailment\tC\tD"],
        "wic": ["label\tword\tpos\tidx1-idx2\texample1\texample2", "T\tgo\tV\t0-0\tA\tB", "F\tgo\tV\t0-0\tC\tD"],
        "stsb": ["", "g\tf\ty\t1\t5.000\tA\tB", "g\tf\ty\t2\t0.5\tC\tD\tsource\tsource"],
    }
    return [line for line in forms[name] if line]


def write(folder: Path, name: str, lines: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(line + "\n" for line in lines).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


LEARNT = {
    "cola": (["It is good .", "It good is ."], None, [1, 0]),
    "mrpc": (['A "b', "C"], ["B", "D"], [1, 0]),
    "rte": (["A", "C"], ["B", "D"], [1, 0]),
    "qnli": (["A", "C"], ["B", "D"], [1, 0]),
    "sst2": (["good ", "bad "], None, [1, 0]),
    "sst5": (["good", "bad"], None, [4, 0]),
    "snli": (["A", "C"], ["B", "D"], [1, 0]),
    "wic": (["go: A", "go: C"], ["B", "D"], [1, 0]),
    "stsb": (["A", "C"], ["B", "D"], [5.0, 0.5]),
}


@pytest.mark.parametrize("name", GLUE_NAMES)
def test_each_task_is_read_from_its_own_format(name, tmp_path):
    prefix = "sts-" if name == "stsb" else ""
    write(tmp_path / name, f"{prefix}train.tsv", rows_of(name))
    write(tmp_path / name, f"{prefix}dev.tsv.gz", rows_of(name))
    found = read_glue(name, tmp_path)
    assert found.fingerprint() == read_glue(name, tmp_path / name).fingerprint()
    for split in (found.train, found.dev):
        texts, pairs, labels = LEARNT[name]
        assert (split.texts, split.pairs, split.labels.tolist()) == (texts, pairs, labels)
    assert found.is_graded == (name == "stsb")
    assert found.measure == {"cola": "matthews", "mrpc": "f1", "stsb": "spearman"}.get(name, "accuracy")


def test_official_glue_folder_is_read(tmp_path):
    write(tmp_path / "CoLA", "train.tsv", rows_of("cola"))
    write(tmp_path / "CoLA", "dev.tsv", rows_of("cola"))
    assert read_glue("cola", tmp_path).train.texts[0] == "It is good ."
    lines = ["index\tgenre\tsentence1\tsentence2\tscore", "0\tx\tA\tB\t5.000", "1\tx\tC\tD\t0.5"]
    write(tmp_path / "STS-B", "train.tsv", lines)
    write(tmp_path / "STS-B", "dev.tsv", lines)
    assert read_glue("stsb", tmp_path).train.labels.tolist() == [5, 0.5]


@pytest.mark.skipif(not DATA.is_dir(), reason="the datasets are not beside the repository")
@pytest.mark.parametrize(
    ("name", "train", "dev", "last"),
    [
        ("cola", 8551, 1043, 721),
        ("mrpc", 3668, 408, 279),
        ("rte", 2490, 277, 131),
        ("sst2", 67349, 872, 444),
        ("sst5", 8544, 1101, 165),
        ("wic", 5428, 638, 319),
        ("stsb", 5749, 1500, None),
    ],
)
def test_real_files_have_the_published_row_counts(name, train, dev, last):
    found = read_glue(name, DATA)
    assert (len(found.train), len(found.dev)) == (train, dev)
    if last is not None:
        assert np.bincount(found.dev.labels)[-1] == last


# a part of the rows


@pytest.mark.parametrize("size", [1, 7, 20, 99, 100])
def test_stratified_subset_keeps_class_shares(size):
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [60, 30, 10]))
    part = stratified_sample(labels, size, seed=3)
    assert len(np.unique(part)) == size
    assert (np.diff(part) > 0).all()
    assert np.abs(np.bincount(labels[part], minlength=3) - size * np.array([0.6, 0.3, 0.1])).max() <= 1


def test_stratified_subset_depends_on_seed_and_grades_are_not_stratified():
    labels = np.arange(200) % 2
    assert (stratified_sample(labels, 20, 0) == stratified_sample(labels, 20, 0)).all()
    assert (stratified_sample(labels, 20, 0) != stratified_sample(labels, 20, 1)).any()
    assert len(stratified_sample(np.linspace(0, 5, 50), 20, 0)) == 20


# the user's own files


@pytest.fixture
def own(tmp_path):
    lines = ["text,other,label", *(f"text {i},more {i},{'yes' if i % 4 else 'no'}" for i in range(80))]
    write(tmp_path, "own.csv", lines)
    return tmp_path / "own.csv"


def test_train_and_held_out_rows_cover_everything(own):
    found = read_custom_task(own, dev_share=0.25)
    assert sorted(found.train.texts + found.dev.texts) == sorted(f"text {i}" for i in range(80))
    assert np.bincount(found.dev.labels).tolist() == [5, 15]
    assert found.labels == ("no", "yes")
    assert found.name == "own"
    assert found.measure == "accuracy"
    assert read_custom_task(own, dev_share=0.25, seed=1).dev.texts != found.dev.texts
    assert read_custom_task(own, dev_share=0.25).fingerprint() == found.fingerprint()


def test_dev_file_replaces_the_split_and_columns_can_be_named(own, tmp_path):
    write(tmp_path, "dev.tsv", ["text\tother\tlabel", "a\tb\tno", "c\td\tyes"])
    found = read_custom_task(own, tmp_path / "dev.tsv", text="other", text_pair="text", label="label", measure="f1")
    assert len(found.train) == 80
    assert (found.dev.texts, found.dev.pairs, found.dev.labels.tolist()) == (["b", "d"], ["a", "c"], [0, 1])
    assert found.measure == "f1"


def test_integers_are_sorted_classes_and_decimals_are_grades(tmp_path):
    write(tmp_path, "t.tsv", ["text\tlabel", *(f"x{i}\t{(i % 3) * 5 + 2}" for i in range(40))])
    assert read_custom_task(tmp_path / "t.tsv").labels == ("2", "7", "12")
    graded = read_custom_task(tmp_path / "t.tsv", measure="pearson")
    assert graded.labels == ()
    assert graded.train.labels.dtype == np.float64
    write(tmp_path, "t.tsv", ["text\tlabel", *(f"x{i}\t{i / 10}" for i in range(40))])
    assert read_custom_task(tmp_path / "t.tsv").measure == "spearman"


def test_table_numbers_give_same_labels_as_text(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for kind in (pa.int8(), pa.float64(), pa.string()):
        labels = pa.array([0, 1] * 20).cast(kind)
        pq.write_table(pa.table({"text": [f"x{i}" for i in range(40)], "label": labels}), tmp_path / "t.parquet")
        assert read_custom_task(tmp_path / "t.parquet").labels == ("0", "1")


# what is wrong


def test_missing_files_error_lists_existing_files(tmp_path):
    write(tmp_path / "qnli", "dev.tsv", rows_of("qnli"))
    with pytest.raises(InputError, match=r"qnli needs train.tsv in .*qnli, which has dev.tsv"):
        read_glue("qnli", tmp_path)
    with pytest.raises(InputError, match=r"nowhere is not a folder: .*cola, such as train\.tsv"):
        read_glue("cola", tmp_path / "nowhere")
    with pytest.raises(InputError, match="no task kola: need one of cola, mrpc"):
        read_glue("kola", tmp_path)


WRONG = {
    "has no label in 1 of 3 rows, first in line 3": ["text\tlabel", "a\t1", "b\t", "c\t0"],
    "has no text in 1 row of column text, first in line 2": ["text\tlabel", " \t1", "b\t0"],
    "only one label, 1: need at least 2": ["text\tlabel", *(f"x{i}\t1" for i in range(40))],
    "no column with a common name for labels, only index, text": ["index\ttext", "0\ta", "1\tb"],
    "no column with a common name for texts, only a, label": ["a\tlabel", "0\t1", "1\t0"],
    "2 rows, too few to hold out a share of 0.1: pass a dev file": ["text\tlabel", "a\t1", "b\t0"],
    "40 different labels in 40 rows: need classes with several rows": [
        "text\tlabel",
        *(f"x\tname {i}" for i in range(40)),
    ],
}


@pytest.mark.parametrize("words", WRONG)
def test_invalid_file_raises_one_line_error(words, tmp_path):
    write(tmp_path, "t.tsv", WRONG[words])
    with pytest.raises(InputError) as error:
        read_custom_task(tmp_path / "t.tsv")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_dev_class_missing_from_training_raises(own, tmp_path):
    write(tmp_path, "dev.tsv", ["text\tlabel", "a\tno", "c\tmaybe"])
    with pytest.raises(
        InputError, match=r"dev.tsv, line 3 has the label 'maybe', which is not a class of the task: need "
    ):
        read_custom_task(own, tmp_path / "dev.tsv")
    with pytest.raises(InputError, match=r"dev_share is 1: need a number in \(0, 1\)"):
        read_custom_task(own, dev_share=1)
    with pytest.raises(InputError, match="measure is 'bleu': need one of accuracy"):
        read_custom_task(own, measure="bleu")
    with pytest.raises(InputError, match="has no column mood for labels: the columns are text, other, label"):
        read_custom_task(own, label="mood")


def test_grades_must_be_numbers(tmp_path):
    write(tmp_path, "t.tsv", ["text\tlabel", "a\t1", "b\tmuch", *(f"x{i}\t{i}" for i in range(40))])
    with pytest.raises(InputError, match="line 3 has the grade 'much': need a finite number"):
        read_custom_task(tmp_path / "t.tsv", measure="spearman")


def test_fingerprint_changes_if_any_row_changes():
    rows = Split(["a", "b"], None, np.array([0, 1]))
    task = Task("t", rows, rows, ("x", "y"), "accuracy")
    others = [
        Task("t", Split(["a", "c"], None, rows.labels), rows, ("x", "y"), "accuracy"),
        Task("t", rows, Split(["a", "b"], None, np.array([1, 1])), ("x", "y"), "accuracy"),
        Task("t", Split(["a", "b"], ["", ""], rows.labels), rows, ("x", "y"), "accuracy"),
        Task("t", rows, rows, ("y", "x"), "accuracy"),
    ]
    assert len({each.fingerprint() for each in (task, *others)}) == 5


def test_reading_does_not_import_torch(own):
    import subprocess
    import sys

    read = f"from isoscope.finetuning.task_data import read_custom_task; read_custom_task({str(own)!r})"
    program = f"{read}; import sys; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "False", run.stderr
