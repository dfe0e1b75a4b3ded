"""Sentences, pairs of sentences and words with their classes: whole data sets for a linear classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.tables import read_table
from isoscope.studies.datasets import DataSet
from isoscope.studies.reading.plain_text import read_text_lines
from isoscope.studies.reading.tasks import read_task

if TYPE_CHECKING:
    from isoscope.studies.datasets import DataSource

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
        "nlp.stanford.edu/projects/snli (as a table: label, sentence1, sentence2)",
    ),
    DataSet(
        "wordnet",
        ("wordnet30", "wordnet"),
        ("lemma_supersenses.tsv",),
        "",
        None,
        "wordnet.princeton.edu (as one table: lemma, pos, semcor_tag_count, all_senses_supersenses with |)",
    ),
)
_BY_NAME = {each.name: each for each in SETS}
_SNLI = ("entailment", "neutral", "contradiction")
_POS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}

GLUE = ("cola", "mrpc", "rte", "qnli", "sst2")
"""Of GLUE's tasks those whose training sets are read."""


@dataclass(frozen=True, eq=False)
class ClassifiedTexts:
    """Texts, each once; items, which are texts or pairs of them by their numbers; and the items' classes."""

    texts: list[str]
    items: np.ndarray
    """(n, 1) or (n, 2): which texts an item is made of."""
    targets: np.ndarray
    """(n,) class numbers; or (n, k) of 0 and 1 where an item may have several classes."""
    classes: tuple[str, ...]

    def part(self, most: int) -> ClassifiedTexts:
        """At most so many items, drawn at random and always the same ones, with the texts that they need."""
        if not 0 < most < len(self.items):
            return self
        kept = np.sort(np.random.default_rng(0).choice(len(self.items), most, replace=False))
        used, numbers = np.unique(self.items[kept], return_inverse=True)
        texts = [self.texts[i] for i in used]
        return ClassifiedTexts(texts, numbers.reshape(most, -1), self.targets[kept], self.classes)


def read_classified(name: str, data: DataSource) -> ClassifiedTexts:
    """A data set of sentences or pairs: the training set of a task of GLUE, polarity, or the dev set of SNLI."""
    if name == "polarity":
        negative, positive = _read_polarity(data)
        texts = [*negative, *positive]  # the published count of parameters has every item, not every distinct one
        targets = np.repeat([0, 1], [len(negative), len(positive)])
        return ClassifiedTexts(texts, np.arange(len(texts))[:, None], targets, ("negative", "positive"))
    if name == "snli":
        return _read_snli(data)
    task = read_task(name, data)
    columns = [task.train.texts] if task.train.pairs is None else [task.train.texts, task.train.pairs]
    return _deduplicate_texts(columns, task.train.labels, task.labels)


def read_word_classes(name: str, data: DataSource) -> ClassifiedTexts:
    """Words with all their classes, those first that are most often tagged in WordNet's own texts.

    `supersense` takes nouns and the 26 supersenses of nouns, `pos` all words and four parts of speech. A word is what
    consists of letters: others may be no word of a list of vectors.
    """
    (path,) = data.files(_BY_NAME["wordnet"])
    table = read_table(path)
    lemmas, parts, counts, senses = (
        table.text(column, "classes of words")
        for column in ("lemma", "pos", "semcor_tag_count", "all_senses_supersenses")
    )
    found: dict[str, set[str]] = {}
    tagged: dict[str, int] = {}
    for lemma, part, count, supersenses in zip(lemmas, parts, counts, senses, strict=True):
        if not lemma.isalpha() or (name == "supersense" and part != "noun"):
            continue
        if part not in _POS or not count.isdecimal():
            raise InputError(f"{path} has pos {part} and semcor_tag_count {count} for {lemma}: need a part, a number")
        found.setdefault(lemma, set()).update(supersenses.split("|") if name == "supersense" else [_POS[part]])
        tagged[lemma] = tagged.get(lemma, 0) + int(count)
    if not found:
        raise InputError(f"{path} has no words for {name}: need lemmas of letters")
    words = sorted(found, key=lambda word: (-tagged[word], word))
    classes = tuple(sorted(set().union(*found.values()))) if name == "supersense" else tuple(_POS.values())
    targets = np.array([[each in found[word] for each in classes] for word in words], np.int64)
    return ClassifiedTexts(words, np.arange(len(words))[:, None], targets, classes)


def _read_polarity(data: DataSource) -> tuple[list[str], list[str]]:
    if data.folder is not None:
        # as their authors gave them, they are in Latin-1
        negative, positive = (read_text_lines(path, latin=True) for path in data.files(_BY_NAME["polarity"]))
        return negative, positive
    rows = data.rows(_BY_NAME["polarity"], "train+validation+test")
    by_label = {
        name: [str(text) for text, label in zip(rows["text"], rows["label"], strict=True) if str(label) in (name, old)]
        for name, old in (("neg", "0"), ("pos", "1"))
    }
    if sum(map(len, by_label.values())) < len(rows["text"]):
        raise InputError("polarity on the hub has other labels than neg and pos")
    return by_label["neg"], by_label["pos"]


def _read_snli(data: DataSource) -> ClassifiedTexts:
    if data.folder is not None:
        (path,) = data.files(_BY_NAME["snli"])
        table = read_table(path)
        first, second, labels = (table.text(each, "pairs") for each in ("sentence1", "sentence2", "label"))
    else:
        rows = data.rows(_BY_NAME["snli"], "validation")
        first, second, labels = rows["premise"], rows["hypothesis"], rows["label"]
    kept = [i for i, label in enumerate(labels) if str(label) in _SNLI]  # the rest is without a label
    if not kept:
        raise InputError(f"snli has no pair with a label: need {', '.join(_SNLI)}")
    columns = [[str(column[i]) for i in kept] for column in (first, second)]
    return _deduplicate_texts(columns, np.array([_SNLI.index(str(labels[i])) for i in kept]), _SNLI)


def _deduplicate_texts(
    columns: Sequence[Sequence[str]], targets: np.ndarray, classes: tuple[str, ...]
) -> ClassifiedTexts:
    numbers: dict[str, int] = {}
    items = [[numbers.setdefault(text, len(numbers)) for text in column] for column in columns]
    return ClassifiedTexts(list(numbers), np.array(items).T, np.asarray(targets, np.int64), classes)
