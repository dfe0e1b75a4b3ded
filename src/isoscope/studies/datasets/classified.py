"""Labeled sentences, sentence pairs and words for a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import FileFormatError, MissingValueError
from isoscope._io.tables import read_table
from isoscope.studies.datasets.source import DataSet
from isoscope.studies.datasets.tasks import read_task
from isoscope.studies.reading.plain_text import read_text_lines

if TYPE_CHECKING:
    from isoscope.studies.datasets.source import DataSource

SETS = (
    DataSet(
        "polarity",
        ("mr", "polarity", "rt-polaritydata"),
        ("rt-polarity.neg", "rt-polarity.pos"),
        "cornell-movie-review-data/rotten_tomatoes",
        None,
        "cs.cornell.edu/people/pabo/movie-review-data",
    ),
    DataSet(
        "snli",
        ("snli", "SNLI"),
        ("dev.tsv",),
        "stanfordnlp/snli",
        None,
        "nlp.stanford.edu/projects/snli (convert to a table with the columns label, sentence1, sentence2)",
    ),
    DataSet(
        "wordnet",
        ("wordnet30", "wordnet"),
        ("lemma_supersenses.tsv",),
        "",
        None,
        "wordnet.princeton.edu (convert to a table with the columns lemma, pos, semcor_tag_count and "
        "all_senses_supersenses, with | between supersenses)",
    ),
)
_BY_NAME = {each.name: each for each in SETS}
_SNLI = ("entailment", "neutral", "contradiction")
_POS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}

GLUE = ("cola", "mrpc", "rte", "qnli", "sst2")
"""The GLUE tasks whose training sets can be read."""


@dataclass(frozen=True, eq=False)
class ClassifiedTexts:
    """Texts, items that refer to one text or a pair of texts by index, and the classes of the items."""

    texts: list[str]
    items: np.ndarray
    """Indices of the texts of each item, of shape (n, 1) or (n, 2)."""
    targets: np.ndarray
    """Class indices of shape (n,), or indicators of shape (n, k) if an item may have several classes."""
    classes: tuple[str, ...]

    def part(self, most: int) -> ClassifiedTexts:
        """Return a reproducible random sample of at most `most` items, with their texts; 0 means all items."""
        if not 0 < most < len(self.items):
            return self
        kept = np.sort(np.random.default_rng(0).choice(len(self.items), most, replace=False))
        used, numbers = np.unique(self.items[kept], return_inverse=True)
        texts = [self.texts[i] for i in used]
        return ClassifiedTexts(texts, numbers.reshape(most, -1), self.targets[kept], self.classes)


def read_classified(name: str, data: DataSource) -> ClassifiedTexts:
    """Return the training set of a GLUE task, the polarity dataset, or the dev set of SNLI."""
    if name == "polarity":
        negative, positive = _read_polarity(data)
        texts = [*negative, *positive]  # duplicates are counted, as in the published number of parameters
        targets = np.repeat([0, 1], [len(negative), len(positive)])
        return ClassifiedTexts(texts, np.arange(len(texts))[:, None], targets, ("negative", "positive"))
    if name == "snli":
        return _read_snli(data)
    task = read_task(name, data)
    columns = [task.train.texts] if task.train.pairs is None else [task.train.texts, task.train.pairs]
    return _deduplicate_texts(columns, task.train.labels, task.labels)


def read_word_classes(name: str, data: DataSource) -> ClassifiedTexts:
    """Return words with all their classes; the words that WordNet's tagged texts contain most often come first.

    `supersense` contains nouns with the 26 noun supersenses, and `pos` contains all words with four parts of speech.
    Only words made of letters are used, because word vector files often lack other words.
    """
    (path,) = data.files(_BY_NAME["wordnet"])
    table = read_table(path)
    lemmas, parts, counts, senses = (
        table.text(column, "classes of words")
        for column in ("lemma", "pos", "semcor_tag_count", "all_senses_supersenses")
    )
    word_classes: dict[str, set[str]] = {}
    tagged: dict[str, int] = {}
    for lemma, part, count, supersenses in zip(lemmas, parts, counts, senses, strict=True):
        if not lemma.isalpha() or (name == "supersense" and part != "noun"):
            continue
        if part not in _POS or not count.isdecimal():
            raise FileFormatError(
                f"{path} has pos {part} and semcor_tag_count {count} for {lemma}: need one of the parts of speech "
                f"{', '.join(_POS)}, and an integer count"
            )
        word_classes.setdefault(lemma, set()).update(supersenses.split("|") if name == "supersense" else [_POS[part]])
        tagged[lemma] = tagged.get(lemma, 0) + int(count)
    if not word_classes:
        raise MissingValueError(f"{path} has no words for {name}: need lemmas that consist only of letters")
    words = sorted(word_classes, key=lambda word: (-tagged[word], word))
    classes = tuple(sorted(set().union(*word_classes.values()))) if name == "supersense" else tuple(_POS.values())
    targets = np.array([[each in word_classes[word] for each in classes] for word in words], np.int64)
    return ClassifiedTexts(words, np.arange(len(words))[:, None], targets, classes)


def _read_polarity(data: DataSource) -> tuple[list[str], list[str]]:
    if data.folder is not None:
        # the authors' files are in Latin-1
        negative, positive = (read_text_lines(path, latin=True) for path in data.files(_BY_NAME["polarity"]))
        return negative, positive
    rows = data.rows(_BY_NAME["polarity"], "train+validation+test")
    by_label = {
        name: [str(text) for text, label in zip(rows["text"], rows["label"], strict=True) if str(label) in (name, old)]
        for name, old in (("neg", "0"), ("pos", "1"))
    }
    if sum(map(len, by_label.values())) < len(rows["text"]):
        raise FileFormatError(
            "polarity on the Hugging Face Hub has labels other than neg and pos; use --data to pass the original files"
        )
    return by_label["neg"], by_label["pos"]


def _read_snli(data: DataSource) -> ClassifiedTexts:
    if data.folder is not None:
        (path,) = data.files(_BY_NAME["snli"])
        table = read_table(path)
        first, second, labels = (table.text(each, "pairs") for each in ("sentence1", "sentence2", "label"))
    else:
        rows = data.rows(_BY_NAME["snli"], "validation")
        first, second, labels = rows["premise"], rows["hypothesis"], rows["label"]
    kept = [i for i, label in enumerate(labels) if str(label) in _SNLI]  # the other rows have no label
    if not kept:
        raise MissingValueError(f"snli has no labeled pairs: need the labels {', '.join(_SNLI)}")
    columns = [[str(column[i]) for i in kept] for column in (first, second)]
    return _deduplicate_texts(columns, np.array([_SNLI.index(str(labels[i])) for i in kept]), _SNLI)


def _deduplicate_texts(
    columns: Sequence[Sequence[str]], targets: np.ndarray, classes: tuple[str, ...]
) -> ClassifiedTexts:
    numbers: dict[str, int] = {}
    items = [[numbers.setdefault(text, len(numbers)) for text in column] for column in columns]
    return ClassifiedTexts(list(numbers), np.array(items).T, np.asarray(targets, np.int64), classes)
