"""Datasets of studies in the published file formats, and the errors for files that cannot be read."""

import gzip

import pytest

import isoscope
from isoscope.studies.datasets import source
from isoscope.studies.datasets.classified import read_classified
from isoscope.studies.datasets.registry import DATA_SETS, fingerprint_data_sets
from isoscope.studies.datasets.running_text import read_text
from isoscope.studies.datasets.source import DataSource
from isoscope.studies.datasets.tasks import read_task

LINES = "It is café .\n\nIt ends .\n"
FILES = {"polarity": ("mr", "rt-polarity.neg", "rt-polarity.pos"), "ptb": ("ptb", "ptb.train.txt", "ptb.valid.txt")}


@pytest.fixture(params=FILES)
def name(request):
    return request.param


def written(tmp_path, name, content, ending=""):
    folder, *files = FILES[name]
    (tmp_path / folder).mkdir()
    for each in files:
        (tmp_path / folder / f"{each}{ending}").write_bytes(content)
    return DataSource(tmp_path)


def sentences(name, data):
    return (
        read_classified(name, data).texts[:2] if name == "polarity" else read_text(name, "train", data)[0].split("\n")
    )


@pytest.mark.parametrize(
    ("content", "ending"),
    [
        (LINES.encode(), ""),
        (LINES.replace("\n", "\r\n").encode(), ""),
        (LINES.encode("utf-8-sig"), ""),
        (gzip.compress(LINES.encode(), mtime=0), ".gz"),
        (gzip.compress(LINES.encode(), mtime=0), ""),
    ],
    ids=["plain", "crlf", "mark", "gzip", "gzip by its bytes"],
)
def test_sentences_do_not_depend_on_the_file_format(name, tmp_path, content, ending):
    assert sentences(name, written(tmp_path, name, content, ending)) == ["It is café .", "It ends ."]


def test_sentences_of_polarity_may_be_in_latin_1(tmp_path):
    assert sentences("polarity", written(tmp_path, "polarity", LINES.encode("latin-1"))) == [
        "It is café .",
        "It ends .",
    ]


def damaged():
    whole = gzip.compress(bytes(range(32, 127)) * 50, mtime=0)
    return whole[:20] + bytes(40) + whole[60:]


@pytest.mark.parametrize(
    ("content", "ending", "words"),
    [
        (b"", "", "contains no text"),
        (b" \n\n", "", "contains no text"),
        (LINES.encode("utf-16"), "", "null bytes"),
        (damaged(), ".gz", "truncated gzip file"),
        (gzip.compress(LINES.encode(), mtime=0)[:-9], ".gz", "truncated gzip file"),
        (LINES.encode(), ".gz", "not a gzip file"),
    ],
    ids=["empty", "blank", "UTF-16", "damaged", "cut", "not packed"],
)
def test_non_text_file_is_named(name, tmp_path, content, ending, words):
    with pytest.raises(isoscope.InputError, match=rf"{FILES[name][1]}.* {words}"):
        sentences(name, written(tmp_path, name, content, ending))


@pytest.mark.parametrize("each", DATA_SETS.values(), ids=DATA_SETS)
def test_missing_file_errors_say_where_to_get_them(each, tmp_path):
    with pytest.raises(isoscope.InputError) as told:
        fingerprint_data_sets((each.name,), DataSource(tmp_path))
    for words in (*each.files, str(tmp_path), each.folders[0], each.link, each.hub):
        assert words in str(told.value)


def test_missing_hub_package_raises_before_any_work(monkeypatch):
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    with pytest.raises(isoscope.MissingExtra, match=r"cola .* Hugging Face Hub .* pip install datasets"):
        fingerprint_data_sets(("cola",), DataSource())


def test_hub_script_is_not_run_but_its_tables_are_read(monkeypatch):
    """Since version 4, `datasets` raises an error for a script-based dataset."""
    datasets = pytest.importorskip("datasets")

    def load(name, config=None, *, split, data_dir=None, revision=None):
        if revision is None:
            raise RuntimeError("Dataset scripts are no longer supported, but found ptb_text_only.py")
        assert (name, config, data_dir, revision) == (
            "ptb-text-only/ptb_text_only",
            None,
            "penn_treebank",
            "refs/convert/parquet",
        )
        return datasets.Dataset.from_dict({"sentence": ["a <unk> of n", "the end"]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_text("ptb", "valid", DataSource()) == ["a <unk> of n\nthe end"]


NAMES = {
    "cola": ["unacceptable", "acceptable"],
    "mrpc": ["not_equivalent", "equivalent"],
    "rte": ["entailment", "not_entailment"],
    "qnli": ["entailment", "not_entailment"],
    "sst2": ["negative", "positive"],
    "sst5": None,
    "wic": ["False", "True"],
}
"""What the classes 0 and 1 are called on the hub."""
TEXTS = {
    "cola": {"sentence": 3},
    "mrpc": {"sentence1": "#1 String", "sentence2": "#2 String"},
    "rte": {"sentence1": "sentence1", "sentence2": "sentence2"},
    "qnli": {"question": "question", "sentence": "sentence"},
    "sst2": {"sentence": "sentence"},
    "sst5": {"text": "sentence"},
    "wic": {"word": "word", "sentence1": "example1", "sentence2": "example2"},
}
"""Columns on the hub, and the same in the files."""
LABELS = {"rte": NAMES["rte"], "qnli": NAMES["qnli"], "wic": ["F", "T"]}


@pytest.mark.parametrize("task", NAMES)
def test_task_from_the_hub_equals_the_files(task, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    rows = [[f"{name} of {i}" for name in TEXTS[task]] for i in range(4)]
    classes = [0, 1, 1, 0]
    features = {name: datasets.Value("string") for name in TEXTS[task]}
    features["label"] = datasets.ClassLabel(names=NAMES[task]) if NAMES[task] else datasets.Value("int64")
    columns = dict(zip(TEXTS[task], map(list, zip(*rows, strict=True)), strict=True)) | {"label": classes}
    hub = datasets.Dataset.from_dict(columns, datasets.Features(features))
    monkeypatch.setattr(datasets, "load_dataset", lambda *words, split: {"train": hub, "validation": hub}[split])

    labels = [LABELS.get(task, "01")[each] for each in classes]
    if task == "cola":
        lines = [f"x\t{label}\t\t{row[0]}" for label, row in zip(labels, rows, strict=True)]
    else:
        head = "\t".join([*TEXTS[task].values(), "Quality" if task == "mrpc" else "label"])
        lines = [head, *("\t".join([*row, label]) for label, row in zip(labels, rows, strict=True))]
    (tmp_path / task).mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / task / name).write_text("\n".join(lines) + "\n")

    ours, theirs = read_task(task, DataSource()), read_task(task, DataSource(tmp_path))
    assert (ours.labels, ours.measure) == (theirs.labels, theirs.measure)
    for one, other in ((ours.train, theirs.train), (ours.dev, theirs.dev)):
        assert (one.texts, one.pairs, one.labels.tolist()) == (other.texts, other.pairs, other.labels.tolist())
