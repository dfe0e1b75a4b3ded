"""Measure raw and repaired token states: similarity, classification, and the isotropy of each layer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import ParameterError
from isoscope._io.files import remove_folder
from isoscope.embedding.embed import embed
from isoscope.finetuning.task_data import stratified_sample
from isoscope.metrics.cosine import mean_cosine
from isoscope.metrics.partition import log_ratios
from isoscope.sketching.sketch import Sketch
from isoscope.stores.open import open_store
from isoscope.studies.datasets.similarities import read_pairs, read_train, train_data_set
from isoscope.studies.datasets.tasks import read_task
from isoscope.studies.states import embed_once

if TYPE_CHECKING:
    from isoscope.stores.store import Store
    from isoscope.studies.datasets.similarities import Pairs
    from isoscope.studies.datasets.source import DataSource
    from isoscope.studies.models import Model
    from isoscope.studies.study import ArmContext

VARIANTS = {
    "none": "no repair",
    "mean": "Mean",
    "mean-pca": "Mean + PCA",
    "kmeans-mean": "K-means + Mean",
    "gmm-mean-pca": "GMM + Mean + PCA",
    "kmeans-mean-pca": "K-means + Mean + PCA",
}
"""The repairs of token states, and their names in the slides."""
REPAIR = "kmeans-mean-pca"
FITS = {"same": "the scored sentences", "train": "a train split"}
"""The sentences on which a repair is fitted."""

SENTENCES_PREFIX, SST2_PREFIX = "sentences", "sst2"
"""The prefixes of the names of the folders that contain states."""
_SAMPLE = 50_000  # number of tokens of a train split for k-means
_LAYER_TOKENS = 4_000
_DOTS = 500


def arm_key(*parts: Any, seed: int | None = None) -> str:
    """Return the key of an arm.

    >>> arm_key("sts", "bert", "stsb", "mean", "", seed=0)
    'sts/bert/stsb/mean/seed-0'
    """
    words = [str(each) for each in parts if each != ""]
    return "/".join(words + ([] if seed is None else [f"seed-{seed}"]))


def uses_clusters(variant: str) -> bool:
    """Return whether a variant uses clusters and therefore depends on a seed."""
    return variant.startswith(("kmeans", "gmm"))


def make_repair(variant: str, clusters: int, components: int, seed: int, sample: int = _SAMPLE) -> Any:
    """Return the library's repair for a variant; None for the variant "none"."""
    from isoscope.transforms.affine import AllButTheTop, Center  # importing scikit-learn takes a second
    from isoscope.transforms.clustered import ClusterCenter, ClusterNull

    several: dict[str, Any] = {"sample": sample, "random_state": seed}
    makers: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "mean": Center,
        "mean-pca": lambda: AllButTheTop(components),
        "kmeans-mean": lambda: ClusterCenter(clusters, **several),
        "gmm-mean-pca": lambda: ClusterNull(clusters, components, clusterer="gmm", **several),
        "kmeans-mean-pca": lambda: ClusterNull(clusters, components, **several),
    }
    if variant not in makers:
        raise ParameterError(f"no variant is named {variant}: choose from {', '.join(VARIANTS)}")
    return makers[variant]()


@dataclass(frozen=True)
class PairSets:
    """The sets of pairs in a run, the kinds of data for fitting repairs, and the number of pairs per set (0: all)."""

    data: DataSource
    names: tuple[str, ...]
    fits: tuple[str, ...]
    limit: int

    def scored(self, name: str) -> Pairs:
        """Return the scored pairs of a set."""
        return self._limit_pairs(read_pairs(name, self.data))

    def train(self, name: str) -> Pairs:
        """Return the pairs on which a repair for this set is fitted."""
        return self._limit_pairs(read_train(train_data_set(name), self.data))

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each distinct sentence; many sentences occur in several sets, and most SICK sentences repeat."""
        of_name = [self.scored(name) for name in self.names]
        sources = {train_data_set(name): name for name in self.names} if "train" in self.fits else {}
        of_name += [self.train(name) for name in sources.values()]
        texts = dict.fromkeys(text for pairs in of_name for text in pairs.texts)
        return {text: place for place, text in enumerate(texts)}

    @cached_property
    def store(self) -> str:
        """The name of the folder with the sentences' states; it includes a hash of the sentences."""
        return f"{SENTENCES_PREFIX}-{hashlib.sha256(repr(list(self.places)).encode()).hexdigest()[:8]}"

    def _limit_pairs(self, pairs: Pairs) -> Pairs:
        return pairs.part(self.limit) if self.limit else pairs


@dataclass(frozen=True)
class TextTokens:
    """The token states of some texts in a store, and the index of each token's text, in ascending order."""

    store: Store
    documents: np.ndarray
    texts: int

    def of(self, texts: Sequence[int]) -> TextTokens:
        """Return the tokens of the given texts, in the given order; texts may repeat."""
        counts = np.bincount(self.documents, minlength=self.texts)
        here = counts[texts]
        documents = np.repeat(np.arange(len(here)), here)
        within = np.arange(len(documents)) - np.repeat(np.cumsum(here) - here, here)
        rows = np.repeat((np.cumsum(counts) - counts)[texts], here) + within
        return TextTokens(open_store(self.store.take(rows)), documents, len(here))

    def states(self) -> np.ndarray:
        """Return all states as a float32 array of shape (n, d)."""
        return np.concatenate(list(self.store.chunks())).astype(np.float32, copy=False)

    def means(self, states: np.ndarray) -> np.ndarray:
        """Return the mean state of each text; zero for a text without tokens."""
        return np.asarray(_sum_by_text(self.documents, self.texts, states) / self._counts)

    def repaired_means(self, repair: Any) -> np.ndarray:
        """Return the mean of each text's repaired states, computed in chunks; if `repair` is None, use raw states."""
        total, at = np.zeros((self.texts, self.store.dim)), 0
        for chunk in self.store.chunks():
            states = chunk.astype(np.float32, copy=False)
            states = states if repair is None else repair.transform(states)
            total += _sum_by_text(self.documents[at : at + len(chunk)], self.texts, states)
            at += len(chunk)
        return np.asarray(total / self._counts)

    @property
    def _counts(self) -> np.ndarray:
        return np.maximum(np.bincount(self.documents, minlength=self.texts), 1)[:, None]


def _sum_by_text(documents: np.ndarray, texts: int, states: np.ndarray) -> np.ndarray:
    """Return the sum of each text's states."""
    from scipy.sparse import csr_array

    places = (np.ones(len(states)), (documents, np.arange(len(states))))
    return np.asarray(csr_array(places, shape=(texts, len(states))) @ states)


@dataclass(frozen=True)
class StateArm:
    """The model, data and repair of an arm that measures token states."""

    model: Model
    data: DataSource
    variant: str
    clusters: int
    components: int
    seed: int
    cleanup_pattern: str
    """A glob pattern for the folders to delete because no later arm needs them."""

    def repair(self, sample: int = _SAMPLE) -> Any:
        """Return the unfitted repair."""
        return make_repair(self.variant, self.clusters, self.components, self.seed, sample)

    def folder(self, bench: ArmContext, name: str) -> Path:
        """Return a path in the folder that all arms of this model share."""
        return bench.shared / "states" / self.model.name / name

    def tokens(self, bench: ArmContext, name: str, texts: Sequence[str]) -> TextTokens:
        """Return the last-layer states of all tokens except special tokens; all arms of this model share them."""
        folder = embed_once(
            bench,
            f"states/{self.model.name}/{name}",
            self.model,
            lambda: list(texts),
            weight=0.5,
            layers=-1,
            pool="tokens",
            special_tokens="drop",
            dtype="float16",
        )
        store = open_store(folder, by="document")
        return TextTokens(store, np.asarray(store.column("by")).astype(np.int64), len(texts))

    def clean(self, bench: ArmContext) -> None:
        """Remove the states that no later arm needs."""
        for folder in sorted(self.folder(bench, "").glob(self.cleanup_pattern)) if self.cleanup_pattern else ():
            remove_folder(folder)


def measure_similarity(arm: StateArm, sets: PairSets, name: str, fit: str, bench: ArmContext) -> dict[str, Any]:
    """Return the correlation of sentence cosines with human scores, and the isotropy of the token states."""
    pairs = sets.scored(name)
    read = arm.tokens(bench, sets.store, list(sets.places))
    tokens = read.of([sets.places[text] for text in pairs.texts])
    states = tokens.states()
    repair = arm.repair()
    if repair is not None:
        bench.tell(0.5, f"fitting {VARIANTS[arm.variant]}")
        if fit == "same":
            repair.fit(states)
        else:
            kept = arm.folder(bench, f"{sets.store}-{train_data_set(name)}-{arm.variant}-{arm.seed}")
            if not kept.exists():  # several sets share a train split
                repair.fit(read.of([sets.places[text] for text in sets.train(name).texts]).store).save(kept)
            repair = type(repair).load(kept)
        states = repair.transform(states)
    bench.tell(0.8, "scoring")
    result = {**correlations(pairs, tokens.means(states)), **isotropy(states)}
    arm.clean(bench)
    return result | {"pairs": len(pairs), "tokens": len(states), "dimensions": states.shape[1]}


def correlations(pairs: Pairs, vectors: np.ndarray) -> dict[str, float]:
    """Return Pearson's r and Spearman's ρ in percent, over all pairs and as the mean over the subsets."""
    from scipy.stats import pearsonr, spearmanr

    first, second = vectors[: len(pairs)], vectors[len(pairs) :]
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(axis=1) / np.where(lengths > 0, lengths, 1)
    subsets = np.asarray(pairs.subsets)
    found = {}
    for word, measure in (("pearson", pearsonr), ("spearman", spearmanr)):
        found[word] = 100 * float(measure(cosines, pairs.scores)[0])
        parts = [np.flatnonzero(subsets == each) for each in np.unique(subsets)]
        each = [
            float(measure(cosines[at], pairs.scores[at])[0]) for at in parts if len(np.unique(pairs.scores[at])) > 1
        ]
        found[f"{word}_of_subsets"] = 100 * float(np.mean(each)) if len(each) > 1 else math.nan
    return found


def isotropy(states: np.ndarray) -> dict[str, float]:
    """Return the partition isotropy of token states, and measures that do not depend on their scale.

    `isotropy` and `log_isotropy` (base 10) use both signs of each eigenvector. `isotropy_of_one_sign` uses one, as the
    authors' code does. `isotropy_at_unit_length` is the isotropy of the states divided by their root-mean-square
    length.
    """
    both, one = log_ratios(states)
    length = math.sqrt(float(np.square(states, dtype=np.float64).sum()) / len(states))
    return {
        "isotropy": math.exp(both),
        "log_isotropy": both / math.log(10),
        "isotropy_of_one_sign": math.exp(one),
        "isotropy_at_unit_length": math.exp(log_ratios(states / length)[0]),
        "isoscore": Sketch.of(states).isoscore() if np.ptp(states, axis=0).any() else math.nan,
    }


def measure_classification(arm: StateArm, limit: int, bench: ArmContext) -> dict[str, Any]:
    """Return the SST-2 accuracy of logistic regression on mean token states; repairs are fitted on the train split."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    task = read_task("sst2", arm.data)
    train = task.train.part(stratified_sample(task.train.labels, limit, 0)) if limit else task.train
    train_tokens = arm.tokens(bench, f"{SST2_PREFIX}-train-{limit}", train.texts)
    dev_tokens = arm.tokens(bench, f"{SST2_PREFIX}-dev", task.dev.texts)
    repair = arm.repair()
    if repair is not None:
        bench.tell(0.5, f"fitting {VARIANTS[arm.variant]}")
        repair.fit(train_tokens.store)
    bench.tell(0.7, "training")
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    probe.fit(train_tokens.repaired_means(repair), train.labels)
    states = dev_tokens.states()
    states = states if repair is None else repair.transform(states)
    accuracy = float(probe.score(dev_tokens.means(states), task.dev.labels))
    arm.clean(bench)
    return {"accuracy": 100 * accuracy, **isotropy(states), "rows": len(train.labels), "dev_rows": len(task.dev)}


def measure_layers(arm: StateArm, sets: PairSets, name: str, bench: ArmContext) -> dict[str, Any]:
    """Return the mean cosine and isotropy of a token sample in each layer, and points before and after the repair."""
    from sklearn.decomposition import PCA

    embed(
        arm.model.place,
        sets.scored(name).texts,
        bench.folder / "layers",
        layers="all",
        pool="tokens",
        special_tokens="drop",
        max_tokens=_LAYER_TOKENS,
        progress=lambda stage, done, share, note="": bench.tell(0.8 * share, "embedding"),
    )
    store = open_store(bench.folder / "layers", by="layer")
    of_layer = np.asarray(store.column("by")).astype(np.int64)
    rows, states = [], np.zeros((0, store.dim), np.float32)
    for layer in np.unique(of_layer):
        states = store.take(np.flatnonzero(of_layer == layer))
        rows.append({"layer": int(layer), "cosine": float(mean_cosine(states)), **isotropy(states)})
    repair = make_repair(REPAIR, min(arm.clusters, len(states)), arm.components, arm.seed).fit(states)
    some = np.sort(np.random.default_rng(0).permutation(len(states))[:_DOTS])
    clouds = {
        word: PCA(2, random_state=0).fit_transform(each)[some].round(4).tolist()
        for word, each in (("before", states), ("after", repair.transform(states)))
    }
    return {"layers": rows, "clusters": repair.predict(states)[some].tolist(), **clouds}
