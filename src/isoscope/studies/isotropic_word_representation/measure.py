"""Token states as they are and repaired: what they give for similarity and for a linear classifier, layer by layer."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.files import remove_folder
from isoscope.embedding.embed import embed
from isoscope.finetuning.task_data import stratified_sample
from isoscope.metrics.cosine import mean_cosine
from isoscope.metrics.partition import log_ratios
from isoscope.sketching.sketch import Sketch
from isoscope.stores.open import open_store
from isoscope.studies.reading.similarities import read_pairs, read_train, train_data_set
from isoscope.studies.reading.tasks import read_task

if TYPE_CHECKING:
    from isoscope.stores.store import Store
    from isoscope.studies.datasets import DataSource, Model
    from isoscope.studies.reading.similarities import Pairs
    from isoscope.studies.study import ArmContext

VARIANTS = {
    "none": "as it is",
    "mean": "Mean",
    "mean-pca": "Mean + PCA",
    "kmeans-mean": "K-means + Mean",
    "gmm-mean-pca": "GMM + Mean + PCA",
    "kmeans-mean-pca": "K-means + Mean + PCA",
}
"""What is done to the tokens, and what the slides call it."""
REPAIR = "kmeans-mean-pca"
FITS = {"same": "the sentences that are scored", "train": "a train split"}
"""What a repair is fitted on."""

SENTENCES_PREFIX, SST2_PREFIX = "sentences", "sst2"
"""How the names of stores of states begin."""
_SAMPLE = 50_000  # tokens of a train split that clusters are learnt from
_LAYER_TOKENS = 4_000
_DOTS = 500


def arm_key(*parts: Any, seed: int | None = None) -> str:
    """An arm's key.

    >>> arm_key("sts", "bert", "stsb", "mean", "", seed=0)
    'sts/bert/stsb/mean/seed-0'
    """
    words = [str(each) for each in parts if each != ""]
    return "/".join(words + ([] if seed is None else [f"seed-{seed}"]))


def uses_clusters(variant: str) -> bool:
    """Whether chance has a part in a variant."""
    return variant.startswith(("kmeans", "gmm"))


def make_repair(variant: str, clusters: int, components: int, seed: int, sample: int = _SAMPLE) -> Any:
    """The library's repair for a variant; None where nothing is done."""
    from isoscope.transforms.affine import AllButTheTop, Center  # scikit-learn takes a second, also to list studies
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
        raise InputError(f"no variant is named {variant}: there are {', '.join(VARIANTS)}")
    return makers[variant]()


@dataclass(frozen=True)
class PairSets:
    """The sets of pairs that a run scores, what repairs are fitted on, and how many pairs of each are read."""

    data: DataSource
    names: tuple[str, ...]
    fits: tuple[str, ...]
    limit: int

    def scored(self, name: str) -> Pairs:
        """The pairs of a set."""
        return self._limit_pairs(read_pairs(name, self.data))

    def train(self, name: str) -> Pairs:
        """The pairs that a repair is fitted on before it scores a set."""
        return self._limit_pairs(read_train(train_data_set(name), self.data))

    @cached_property
    def places(self) -> dict[str, int]:
        """Every different sentence of them, and its place: sets share many, and SICK has most of its own twice."""
        of_name = [self.scored(name) for name in self.names]
        sources = {train_data_set(name): name for name in self.names} if "train" in self.fits else {}
        of_name += [self.train(name) for name in sources.values()]
        texts = dict.fromkeys(text for pairs in of_name for text in pairs.texts)
        return {text: place for place, text in enumerate(texts)}

    @cached_property
    def store(self) -> str:
        """What the store of their states is called: otherwise for other sentences."""
        return f"{SENTENCES_PREFIX}-{hashlib.sha256(repr(list(self.places)).encode()).hexdigest()[:8]}"

    def _limit_pairs(self, pairs: Pairs) -> Pairs:
        return pairs.part(self.limit) if self.limit else pairs


@dataclass(frozen=True)
class TextTokens:
    """The tokens of some texts: their states in a store, and the text that each is of, in the order of the texts."""

    store: Store
    documents: np.ndarray
    texts: int

    def of(self, texts: Sequence[int]) -> TextTokens:
        """The tokens of some of the texts, in their order; a text that is named twice is there twice."""
        counts = np.bincount(self.documents, minlength=self.texts)
        here = counts[texts]
        documents = np.repeat(np.arange(len(here)), here)
        within = np.arange(len(documents)) - np.repeat(np.cumsum(here) - here, here)
        rows = np.repeat((np.cumsum(counts) - counts)[texts], here) + within
        return TextTokens(open_store(self.store.take(rows)), documents, len(here))

    def states(self) -> np.ndarray:
        """All of them, (n, d) in float32."""
        return np.concatenate(list(self.store.chunks())).astype(np.float32, copy=False)

    def means(self, states: np.ndarray) -> np.ndarray:
        """The mean of each text's states; zero for a text without a token."""
        return np.asarray(_sum_by_text(self.documents, self.texts, states) / self._counts)

    def repaired_means(self, repair: Any) -> np.ndarray:
        """The mean of each text's states, repaired unless `repair` is None, a part of them in memory at once."""
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
    """The sum of each text's states."""
    from scipy.sparse import csr_array

    places = (np.ones(len(states)), (documents, np.arange(len(states))))
    return np.asarray(csr_array(places, shape=(texts, len(states))) @ states)


def embed_tokens(model: Model, texts: Sequence[str], folder: Path, tell: Callable[[float], None]) -> TextTokens:
    """The last layer's states of all tokens but special ones; from the folder if they are there already."""
    if not folder.exists():
        half = folder.with_name(f"{folder.name}.part")
        embed(
            model.place,
            list(texts),
            half,
            layers=-1,
            pool="tokens",
            special_tokens="drop",
            dtype="float16",
            progress=lambda stage, done, share, note="": tell(share),
        )
        half.rename(folder)
    store = open_store(folder, by="document")
    return TextTokens(store, np.asarray(store.column("by")).astype(np.int64), len(texts))


@dataclass(frozen=True)
class StateArm:
    """What one arm on token states is asked for."""

    model: Model
    data: DataSource
    variant: str
    clusters: int
    components: int
    seed: int
    cleanup_pattern: str
    """Stores that no later arm needs, by a pattern of their names: they are removed."""

    def repair(self, sample: int = _SAMPLE) -> Any:
        """Its repair, not fitted yet."""
        return make_repair(self.variant, self.clusters, self.components, self.seed, sample)

    def folder(self, bench: ArmContext, name: str) -> Path:
        """Where something is kept that all arms of this model share."""
        found = bench.shared / "states" / self.model.name / name
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def tokens(self, bench: ArmContext, name: str, texts: Sequence[str]) -> TextTokens:
        """States under a name that all arms of this model share."""
        folder = self.folder(bench, name)
        return embed_tokens(self.model, texts, folder, lambda share: bench.tell(0.5 * share, f"reads {name}"))

    def clean(self, bench: ArmContext) -> None:
        """Free the disk of what is no longer needed; what a kill leaves half removed is not taken for states."""
        for folder in sorted(self.folder(bench, "").glob(self.cleanup_pattern)) if self.cleanup_pattern else ():
            remove_folder(folder)


def measure_similarity(arm: StateArm, sets: PairSets, name: str, fit: str, bench: ArmContext) -> dict[str, Any]:
    """How well the cosine of two sentences' mean token states goes with people's scores, and how isotropic they are."""
    pairs = sets.scored(name)
    read = arm.tokens(bench, sets.store, list(sets.places))
    tokens = read.of([sets.places[text] for text in pairs.texts])
    states = tokens.states()
    repair = arm.repair()
    if repair is not None:
        bench.tell(0.5, f"fits {VARIANTS[arm.variant]}")
        if fit == "same":
            repair.fit(states)
        else:
            kept = arm.folder(bench, f"{sets.store}-{train_data_set(name)}-{arm.variant}-{arm.seed}")
            if not kept.exists():  # one train split serves several sets
                repair.fit(read.of([sets.places[text] for text in sets.train(name).texts]).store).save(kept)
            repair = type(repair).load(kept)
        states = repair.transform(states)
    bench.tell(0.8, "scores")
    found = {**correlations(pairs, tokens.means(states)), **isotropy(states)}
    arm.clean(bench)
    return found | {"pairs": len(pairs), "tokens": len(states), "dimensions": states.shape[1]}


def correlations(pairs: Pairs, vectors: np.ndarray) -> dict[str, float]:
    """Pearson and Spearman in per cent, of all pairs together and as the mean over the set's parts."""
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
    """Return the partition isotropy of token states, and measures beside it that do not depend on their scale.

    `isotropy` and `log_isotropy` (to base 10) take both signs of each direction, `isotropy_of_one_sign` takes one, as
    the authors' code does. `isotropy_at_unit_length` is of the states divided by their root-mean-square length.
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
    """SST-2 by a logistic regression on mean token states, repaired as the train split's tokens say."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    task = read_task("sst2", arm.data)
    train = task.train.part(stratified_sample(task.train.labels, limit, 0)) if limit else task.train
    learnt = arm.tokens(bench, f"{SST2_PREFIX}-train-{limit}", train.texts)
    scored = arm.tokens(bench, f"{SST2_PREFIX}-dev", task.dev.texts)
    repair = arm.repair()
    if repair is not None:
        bench.tell(0.5, f"fits {VARIANTS[arm.variant]}")
        repair.fit(learnt.store)
    bench.tell(0.7, "learns")
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    probe.fit(learnt.repaired_means(repair), train.labels)
    states = scored.states()
    states = states if repair is None else repair.transform(states)
    accuracy = float(probe.score(scored.means(states), task.dev.labels))
    arm.clean(bench)
    return {"accuracy": 100 * accuracy, **isotropy(states), "rows": len(train.labels), "dev_rows": len(task.dev)}


def measure_layers(arm: StateArm, sets: PairSets, name: str, bench: ArmContext) -> dict[str, Any]:
    """Mean cosine and isotropy of some tokens in each layer, and where tokens lie before and after the repair."""
    from sklearn.decomposition import PCA

    embed(
        arm.model.place,
        sets.scored(name).texts,
        bench.folder / "layers",
        pool="tokens",
        special_tokens="drop",
        max_tokens=_LAYER_TOKENS,
        progress=lambda stage, done, share, note="": bench.tell(0.8 * share, "reads"),
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
