"""Check that fixed calls of isoscope's public API still give the same numbers, to the last bit.

    python tools/golden.py                            compare with tools/golden.json; exit code 1 if any call differs
    python tools/golden.py --pages                    compare the HTML pages too
    python tools/golden.py --only 'audit*'            run only the matching calls
    python tools/golden.py --leaves now.txt           also write every compared value, to diff two checkouts
    python tools/golden.py --record tools/golden.json record the current results

A call returns named parts: arrays, JSON-like results, files and pages. The record keeps one SHA-256 per call, a short
one per part, and up to 12 of the call's numbers, which show the size of a difference. Arrays are hashed with their
dtype and shape. JSON-like results are hashed by their numbers, booleans and nulls, with their paths, and by strings
that are identifiers (`IDENTIFIERS`). Sentences, file names, versions and timings are left out. Pages have a separate
hash, which is compared only with --pages, because rewording changes it.

The record is valid for one machine: another CPU, or another version of BLAS, NumPy or torch, rounds differently. On
another machine, first record the commit before a change, then compare the change with it. The script restarts itself
with `ENVIRONMENT`, which fixes the thread counts and the hash seed. The last bits of some results depend on the number
of threads (silhouettes of float32 rows, eigenvalues of 384 dimensions, k-means). Calls with such results are marked
`one_thread` and run on one thread. The others give the same bits with one or two threads of BLAS or OpenMP
(`--blas-threads`, `--omp-threads`).

Databases, Dask and GPUs are left out because they need a server or a device. Exports to ONNX and Sentence Transformers
are left out because other libraries write them. At least one arm of each of the five studies runs, on generated data
and toy models.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import isoscope

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "2",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "NO_COLOR": "1",
}
IDENTIFIERS = {"best", "choice", "chosen", "class", "direction", "dtype", "holds", "key", "layer", "measure", "metric"}
IDENTIFIERS |= {"name", "schema", "verdict"}
"""Keys whose strings are compared."""
IGNORED = ("/seconds", "source/name")
"""Ends of paths that are not compared: timings and file names."""
VALUES = 12
RECORD = Path(__file__).with_name("golden.json")

Parts = dict[str, Any]
CALLS: dict[str, Callable[[Path], Parts]] = {}
ONE_THREAD: set[str] = set()
"""Calls whose bits depend on the number of threads."""


class Page(NamedTuple):
    """The text of an HTML page."""

    text: str


def call(*variants: str, one_thread: bool = False) -> Callable[[Callable[..., Parts]], Callable[..., Parts]]:
    """Register a function of a temporary folder as a call, or as one call per variant, named `name.variant`."""

    def register(function: Callable[..., Parts]) -> Callable[..., Parts]:
        name = function.__name__
        for variant in variants:
            CALLS[f"{name}.{variant}"] = lambda folder, variant=variant: function(folder, variant)
        if not variants:
            CALLS[name] = function
        if one_thread:
            ONE_THREAD.update([name] if not variants else [f"{name}.{variant}" for variant in variants])
        return function

    return register


# Data


def make_cloud(n: int = 600, d: int = 24, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    """Return random rows with a mean, uneven variances and three clusters."""
    rng = np.random.default_rng(seed)
    centers = 3 * rng.standard_normal((3, d))
    cloud = rng.standard_normal((n, d)) * np.linspace(2, 0.3, d) + centers[np.arange(n) % 3] + 1
    return cloud.astype(dtype)


def make_labels(n: int = 600) -> np.ndarray:
    """Return three classes, one of them rare."""
    return np.where(np.arange(n) % 17 == 0, 2, np.arange(n) % 2)


def make_groups(n: int = 600) -> np.ndarray:
    """Return groups of 15 neighboring rows."""
    return np.arange(n) // 15


def make_words(n: int = 600) -> list[str]:
    """Return a short text for each row."""
    return [f"w{i}x{i * i % 97}" for i in range(n)]


def kinds(n: int = 600, d: int = 24, seed: int = 0) -> dict[str, Any]:
    """Return the same data as float64, as float32 and as a float32 torch tensor."""
    import torch

    wide, narrow = make_cloud(n, d, seed), make_cloud(n, d, seed, "float32")
    return {"float64": wide, "float32": narrow, "torch": torch.from_numpy(narrow)}


def on_each_kind(measure: Callable[[Any], Parts], n: int = 600) -> Parts:
    """Return the results of `measure` for each kind of array."""
    return {kind: measure(X) for kind, X in kinds(n).items()}


WORDS = [*"abcdefghijklmnopqrstuvwxyz", "good", "bad", "fine", "poor", "the", "film", "is", "was", "very", "not"]


def make_tokenizer(special: list[str]) -> Any:
    """Return a tokenizer that splits at spaces; it adds [CLS] and [SEP] if these are in `special`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: i for i, word in enumerate([*special, *WORDS])}
    unknown = next(word for word in special if "unk" in word.lower())
    made = Tokenizer(models.WordLevel(numbers, unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if "[CLS]" not in special:
        return PreTrainedTokenizerFast(tokenizer_object=made, unk_token=unknown, eos_token="<eos>")
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, numbers[word]) for word in ("[CLS]", "[SEP]")],
    )
    names = {"unk_token": unknown, "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, **names, model_input_names=inputs)


SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@cache
def temporary() -> Path:
    """Return a folder for the toy models, which is removed at exit."""
    import atexit

    folder = tempfile.TemporaryDirectory(prefix="golden-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


@cache
def encoder() -> Path:
    """Return the folder of a BERT with 2 layers of 32 dimensions and random weights."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    tokenizer = make_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    folder = temporary() / "encoder"
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SHAPE)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def decoder() -> Path:
    """Return the folder of a Llama with 2 layers of 32 dimensions and random weights."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    tokenizer = make_tokenizer(["<unk>", "<eos>"])
    end = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.eos_token_id}
    folder = temporary() / "decoder"
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SHAPE, **end)
    LlamaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_sentence(rng: np.random.Generator, words: tuple[str, ...] = ("good", "fine")) -> str:
    """Return a sentence of random letters that contains one of the given words."""
    letters = list(rng.choice(WORDS[:26], rng.integers(2, 9)))
    letters.insert(int(rng.integers(len(letters))), str(rng.choice(words)))
    return "the film is " + " ".join(letters)


def make_opinions(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Return sentences, and labels that say whether each sentence contains a positive word."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count).tolist()
    return [make_sentence(rng, ("good", "fine") if label else ("bad", "poor")) for label in labels], labels


def write_lines(path: Path, *lines: str) -> None:
    """Write a text file; create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def run_command(folder: Path, *arguments: str) -> str:
    """Run `isoscope ARGUMENTS` in a folder and return its output."""
    command = [sys.executable, "-m", "isoscope", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def all_rows(store: Any) -> Parts:
    """Return everything in a store: its vectors, its columns and their roles."""
    roles = ("labels", "types", "text", "ids", "frequency")
    columns = {role: store.column(role) for role in roles if role in store.columns}
    return {"vectors": store.take(range(len(store))), "columns": columns, "roles": sorted(store.columns)}


def page_of(result: Any, folder: Path, **options: Any) -> Page:
    """Return the HTML page of a result."""
    result.to_html(folder / "page.html", **options)
    return Page((folder / "page.html").read_text(encoding="utf-8"))


# Metrics


@call()
def metrics_spectrum(folder: Path) -> Parts:
    """IsoScore and its estimators, participation ratio, spectrum, anisotropy, effective rank."""

    def measure(X: Any) -> Parts:
        groups = make_groups(len(X))
        return {
            "isoscore": isoscope.isoscore(X),
            "unbiased": isoscope.isoscore(X, unbiased=True),
            "grouped": isoscope.isoscore(X, unbiased=True, groups=groups),
            "interval": isoscope.isoscore_interval(X),
            "grouped_interval": isoscope.isoscore_interval(X, groups=groups),
            "star": isoscope.isoscore_star(X[:40], np.eye(X.shape[1]), 0.3),
            "participation_ratio": isoscope.participation_ratio(X),
            "participation_ratio_unbiased": isoscope.participation_ratio(X, unbiased=True, groups=groups),
            "spectrum": isoscope.spectrum(X),
            "spectrum_uncentered": isoscope.spectrum(X, center=False),
            "anisotropy": isoscope.anisotropy(X),
            "anisotropy_centered": isoscope.anisotropy(X, 5, center=True),
            "effective_rank": isoscope.effective_rank(X),
        }

    return on_each_kind(measure)


@call()
def metrics_cosine(folder: Path) -> Parts:
    """Mean cosine, its contributions, similarity within and between types."""

    def measure(X: Any) -> Parts:
        types, clusters = np.arange(len(X)) % 40, np.arange(len(X)) % 3
        return {
            "mean_cosine": isoscope.mean_cosine(X),
            "contribution": isoscope.cosine_contribution(X),
            "intra": isoscope.intra_similarity(X, types),
            "intra_capped": isoscope.intra_similarity(X, types, per_type_cap=5, seed=1),
            "intra_clustered": isoscope.intra_similarity(X, types, clustered=clusters),
            "inter": isoscope.inter_similarity(X, types),
            "inter_types": isoscope.inter_similarity(X, types, average="types"),
            "inter_capped": isoscope.inter_similarity(X, types, per_type_cap=1, seed=1),
        }

    return on_each_kind(measure)


@call()
def metrics_neighbors(folder: Path) -> Parts:
    """LID, TwoNN and hubness, with both metrics, with and without a sample."""

    def measure(X: Any) -> Parts:
        return {
            "lid": isoscope.lid(X, 20),
            "lid_cosine": isoscope.lid(X, 20, metric="cosine"),
            "lid_cai": isoscope.lid(X, 20, convention="cai", sample=100, seed=1),
            "two_nn": isoscope.two_nn(X),
            "two_nn_sample": isoscope.two_nn(X, discard=0.2, sample=200, seed=1),
            "hubness": isoscope.hubness(X),
            "hubness_cosine": isoscope.hubness(X, 5, metric="cosine", sample=150, seed=1),
        }

    return on_each_kind(measure)


@call(one_thread=True)
def metrics_clusters(folder: Path) -> Parts:
    """Silhouettes and the choice of a number of clusters."""

    def measure(X: Any) -> Parts:
        labels = make_labels(len(X))
        return {
            "silhouette": isoscope.silhouette(X, labels),
            "per_point": isoscope.silhouette(X, labels, per_point=True),
            "cosine": isoscope.silhouette(X, labels, metric="cosine"),
            "choice": isoscope.choose_clusters(X, range(2, 6), restarts=2, seed=1),
        }

    return on_each_kind(measure)


@call()
def metrics_objectives(folder: Path) -> Parts:
    """The four objectives of Mickus et al."""

    def measure(X: Any) -> Parts:
        labels = make_labels(len(X))
        return {
            "isotropy": isoscope.metrics.isotropy_objective(X),
            "isotropy_cosine": isoscope.metrics.isotropy_objective(X, cosine=True),
            "silhouette": isoscope.metrics.silhouette_objective(X, labels),
            "classifier": isoscope.metrics.classifier_objective(X, labels, X[:3]),
            "triplet": isoscope.metrics.triplet_objective(X, labels),
            "triplet_distances": isoscope.metrics.triplet_objective(X, labels, squared=False),
        }

    return on_each_kind(measure)


@call()
def metrics_topology(folder: Path) -> Parts:
    """The H0 barcode, its entropy and its features."""

    def measure(X: Any) -> Parts:
        bars = isoscope.h0_barcode(X)
        return {
            "bars": bars,
            "entropy": isoscope.persistent_entropy(bars),
            "features": isoscope.metrics.select_bars(bars),
            "features_printed": isoscope.metrics.select_bars(bars, rule="printed"),
        }

    return on_each_kind(measure)


@call()
def metrics_uniformity(folder: Path) -> Parts:
    """Uniformity, alignment and partition isotropy."""

    def measure(X: Any) -> Parts:
        return {
            "uniformity": isoscope.uniformity(X),
            "uniformity_3": isoscope.uniformity(X, 3.0),
            "alignment": isoscope.alignment(X, X + 0.1),
            "partition": isoscope.partition_isotropy(0.1 * X),
            "partition_log": isoscope.partition_isotropy(X, log=True),
            "partition_plus": isoscope.partition_isotropy(X, signs="plus", log=True),
        }

    return on_each_kind(measure)


@call()
def metrics_gradients(folder: Path) -> Parts:
    """Gradients of the metrics through torch."""
    import torch

    labels = make_labels(60)
    measures = {
        "isoscore": isoscope.isoscore,
        "unbiased": lambda X: isoscope.isoscore(X, unbiased=True),
        "effective_rank": isoscope.effective_rank,
        "mean_cosine": isoscope.mean_cosine,
        "silhouette": lambda X: isoscope.silhouette(X, labels),
        "lid": lambda X: isoscope.lid(X, 10),
        "bars": lambda X: isoscope.h0_barcode(X).sum(),
        "uniformity": isoscope.uniformity,
        "partition": lambda X: isoscope.partition_isotropy(X, log=True),
    }
    found = {}
    for name, measure in measures.items():
        X = torch.from_numpy(make_cloud(60, 8)).requires_grad_()
        measure(X).backward()
        found[name] = X.grad
    return found


# Sketches


def sketch_measurements(sketch: Any) -> Parts:
    """Return the contents and the measurements of a sketch."""
    held = ("n", "mean", "scatter", "cubic", "quartic", "unit_sum", "unit_squares", "zeros", "nonfinite", "duplicates")
    found = {name: getattr(sketch, name) for name in held}
    names = ["covariance", "isoscore", "participation_ratio", "spectrum", "anisotropy", "effective_rank", "mean_cosine"]
    names += ["cosine_contribution", "isotropy_objective"]
    if sketch.types is not None:
        names += ["intra_similarity", "inter_similarity", "silhouette_objective", "triplet_objective"]
    if sketch.groups is not None:
        names += ["isoscore_interval"]
    found |= {name: getattr(sketch, name)() for name in names}
    return found | {"isoscore_unbiased": sketch.isoscore(unbiased=True)}


@call()
def sketch_array(folder: Path) -> Parts:
    """Sketches of an array with many chunks, of an iterable of chunks, and of a file with bad rows."""
    X = make_cloud(40_000, 48, dtype="float32")
    bad = make_cloud(dtype="float32")
    bad[5], bad[77, 3], bad[9] = 0, np.nan, bad[8]
    np.save(folder / "bad.npy", bad)
    return {
        "array": sketch_measurements(isoscope.sketch(X)),
        "chunks": sketch_measurements(isoscope.sketch(X[i : i + 7_000] for i in range(0, len(X), 7_000))),
        "file": sketch_measurements(isoscope.sketch(folder / "bad.npy", missing="drop")),
    }


@call()
def sketch_merged(folder: Path) -> Parts:
    """A sum of sketches with types and groups, and its file."""
    X, types, groups = make_cloud(), np.arange(600) % 40, make_groups()
    parts = [isoscope.Sketch.of(X[i::3], types[i::3], groups=groups[i::3]) for i in range(3)]
    total = sum(parts[1:], parts[0])
    total.save(folder / "sketch.safetensors")
    return {
        "one": sketch_measurements(isoscope.sketch(X, types=types, groups=groups)),
        "sum": sketch_measurements(total),
        "file": (folder / "sketch.safetensors").read_bytes(),
        "loaded": sketch_measurements(isoscope.Sketch.load(folder / "sketch.safetensors")),
    }


# Audits


@call(one_thread=True)
def audit_array(folder: Path) -> Parts:
    """The audit of an array with both metrics, and its page."""
    found = isoscope.audit(make_cloud(900, 32, dtype="float32"))
    return {
        "cosine": found.to_dict(),
        "euclidean": isoscope.audit(make_cloud(400, 16), metric="euclidean", seed=3).to_dict(),
        "percentiles": [found.percentile(cosine) for cosine in (-0.5, 0.0, 0.3, 0.8)],
        "page": page_of(found, folder),
    }


@call(one_thread=True)
def audit_columns(folder: Path) -> Parts:
    """The audit of an array with labels, types, texts, frequencies and groups."""
    columns = {"labels": make_labels(), "types": np.arange(600) % 40, "groups": make_groups(), "text": make_words()}
    found = isoscope.audit(make_cloud(), **columns, frequency=1 / (1 + np.arange(600)))
    return {"audit": found.to_dict(), "page": page_of(found, folder)}


@call(one_thread=True)
def audit_queries(folder: Path) -> Parts:
    """The audit of a corpus with queries."""
    queries = make_cloud(150, seed=2, dtype="float32") + np.float32(0.5)
    found = isoscope.audit(make_cloud(dtype="float32"), queries=queries)
    return {"audit": found.to_dict(), "page": page_of(found, folder)}


@call(one_thread=True)
def audit_sample(folder: Path) -> Parts:
    """The audit of a sample of the rows of a file, some of which are bad."""
    X = make_cloud(5_000, 40, dtype="float32")
    X[7], X[70, 3], X[90:99] = 0, np.inf, X[80]
    np.save(folder / "cloud.npy", X)
    return {"audit": isoscope.audit(folder / "cloud.npy", sample=500, missing="drop").to_dict()}


@call(one_thread=True)
def audit_demo(folder: Path) -> Parts:
    """The audit of the demo vectors that are included with isoscope."""
    found = isoscope.audit(demo_file(5))
    return {"audit": found.to_dict(), "page": page_of(found, folder)}


@call()
def audit_groups(folder: Path) -> Parts:
    """Audits of the demo vectors by label, and of data by bins of a numeric column."""
    labels = isoscope.audit(demo_file(6), by="label")
    ranges = isoscope.audit(make_cloud(), by=np.linspace(0, 1, 600) ** 2, groups=make_groups())
    return {"labels": labels.to_dict(), "ranges": ranges.to_dict(), "page": page_of(labels, folder)}


@call(one_thread=True)
def audit_baseline(folder: Path) -> Parts:
    """An audit from the command line, compared with an earlier audit."""
    np.save(folder / "before.npy", make_cloud())
    np.save(folder / "after.npy", make_cloud() - 1)
    run_command(folder, "audit", "before.npy", "--json", "before.json")
    run_command(
        folder, "audit", "after.npy", "--baseline", "before.json", "--json", "after.json", "--html", "page.html"
    )
    page = Page((folder / "page.html").read_text(encoding="utf-8"))
    return {"after": json.loads((folder / "after.json").read_text(encoding="utf-8")), "page": page}


@call(one_thread=True)
def audit_compare(folder: Path) -> Parts:
    """A comparison of two files from the command line."""
    np.save(folder / "one.npy", make_cloud())
    np.save(folder / "other.npy", make_cloud(d=12))
    told = run_command(folder, "audit", "one.npy", "other.npy", "--json", "-", "--html", "page.html")
    return {"comparison": json.loads(told), "page": Page((folder / "page.html").read_text(encoding="utf-8"))}


@call()
def similarity(folder: Path) -> Parts:
    """The numbers that `isoscope similarity` prints."""
    np.save(folder / "cloud.npy", make_cloud(dtype="float32"))
    printed = run_command(folder, "similarity", "cloud.npy", "-0.2", "0.1", "0.5", "0.9")
    return {"numbers": [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", printed)]}


def demo_file(layer: int) -> Path:
    """Return the file of demo vectors from layer 5 or 6."""
    return Path(isoscope.__file__).parent / "demo" / f"glosses-layer{layer}.parquet"


# Advice


def advice_parts(advice: Any, folder: Path) -> Parts:
    """Return the advice, the vectors after its repair, and the page."""
    repaired = advice.repair.transform(make_cloud(20, advice.d))
    return {"advice": advice.to_dict(), "repaired": repaired, "page": page_of(advice, folder)}


def make_rogue(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Return meanings in 12 dimensions, and vectors in which a rogue coordinate outweighs them."""
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((n, 12))
    X = np.hstack([meaning, np.zeros((n, 4))]) + 0.2 * rng.standard_normal((n, 16))
    X[:, 15] += 15 * rng.standard_normal(n)
    return meaning, X


@call()
def advise_pairs(folder: Path) -> Parts:
    """Advice from graded pairs."""
    meaning, X = make_rogue()
    first, second = np.random.default_rng(1).permutation(300).reshape(2, 150)
    grades = -np.linalg.norm(meaning[first] - meaning[second], axis=1)
    return advice_parts(isoscope.advise(X, pairs=(first, second, grades)), folder)


@call()
def advise_queries(folder: Path) -> Parts:
    """Advice from queries and the documents that answer them."""
    meaning, X = make_rogue()
    asked = X[:60] + 0.3 * np.random.default_rng(2).standard_normal((60, 16))
    distances = np.linalg.norm(meaning[:60, None] - meaning[None], axis=2)
    qrels = {query: {int(row): 1 for row in np.argsort(distances[query])[:4]} for query in range(60)}
    return advice_parts(isoscope.advise(X, queries=asked, qrels=qrels), folder)


@call()
def advise_labels(folder: Path) -> Parts:
    """Advice from labels, on the rows of the source and on new rows."""
    topics = np.random.default_rng(0).integers(0, 4, 240)
    X = make_rogue(240)[1] + 2 * np.eye(16)[topics]
    given = [isoscope.Center(), isoscope.Standardize(), isoscope.Whiten(), isoscope.ClusterNull(2, random_state=0)]
    later = isoscope.advise(X, labels=topics, candidates=given, new_rows=True, measure="knn")
    return {"later": later.to_dict(), **advice_parts(isoscope.advise(X, labels=topics), folder)}


@call()
def advise_nothing(folder: Path) -> Parts:
    """Advice without a task."""
    return advice_parts(isoscope.advise(make_rogue()[1].astype("float32")), folder)


# Repairs


def make_repair(name: str) -> Any:
    """Return an unfitted repair."""
    return {
        "center": isoscope.Center(),
        "standardize": isoscope.Standardize(),
        "all_but_the_top": isoscope.AllButTheTop(2),
        "whiten_zca": isoscope.Whiten(),
        "whiten_pca": isoscope.Whiten("pca", n_components=10, shrinkage=0.1),
        "cluster_center": isoscope.ClusterCenter(random_state=0),
        "cluster_null": isoscope.ClusterNull(3, 2, random_state=0),
        "cluster_null_gmm": isoscope.ClusterNull(3, 1, clusterer="gmm", random_state=0),
        "chain": isoscope.Chain([isoscope.Standardize(), isoscope.AllButTheTop(1)]),
    }[name]


@call(
    *("center", "standardize", "all_but_the_top", "whiten_zca", "whiten_pca"),
    *("cluster_center", "cluster_null", "cluster_null_gmm", "chain"),
    one_thread=True,
)
def repair(folder: Path, name: str) -> Parts:
    """A repair fitted to an array and to a file, applied, saved and loaded."""
    np.save(folder / "cloud.npy", make_cloud(dtype="float32"))
    new = kinds(50, seed=1)
    fitted = make_repair(name).fit(make_cloud())
    from_file = make_repair(name).fit(folder / "cloud.npy")
    fitted.save(folder / "repair")
    loaded = isoscope.load_transform(folder / "repair")
    return {
        "array": {kind: fitted.transform(X) for kind, X in new.items()},
        "file": from_file.transform(new["float32"]),
        "loaded": loaded.transform(new["float32"]),
        "affine": fitted.as_affine() if getattr(fitted, "is_affine", hasattr(fitted, "as_affine")) else None,
        "tensors": (folder / "repair" / "model.safetensors").read_bytes(),
        "config": json.loads((folder / "repair" / "config.json").read_text(encoding="utf-8")),
    }


def write_table(path: Path, X: np.ndarray) -> Path:
    """Write vectors to Parquet, with labels, texts and ids."""
    n = len(X)
    store = isoscope.open_store(X, labels=make_labels(n), text=make_words(n), ids=[f"r{i}" for i in range(n)])
    isoscope.write_store(store, path)
    return path


@call("cloud.npy", "cloud.safetensors", "cloud.parquet", "folder")
def repair_store(folder: Path, target: str) -> Parts:
    """A repaired table, as a file and as a folder."""
    table = write_table(folder / "table.parquet", make_cloud(30_000, dtype="float32"))
    fitted = make_repair("whiten_zca").fit(table)
    rows = isoscope.repair_store(table, fitted, folder / target)
    return {"rows": rows, "repaired": all_rows(isoscope.open_store(folder / target))}


@call()
def repair_commands(folder: Path) -> Parts:
    """Repairs from the command line: fit, apply and fix."""
    write_table(folder / "table.parquet", make_cloud(dtype="float32"))
    run_command(folder, "fit", "cluster-null", "table.parquet", "-o", "repair", "--clusters", "3", "--seed", "0")
    run_command(folder, "apply", "repair", "table.parquet", "-o", "applied.parquet")
    run_command(folder, "fix", "whiten", "table.parquet", "-o", "fixed.npy", "--html", "page.html")
    page = Page((folder / "page.html").read_text(encoding="utf-8"))
    applied = all_rows(isoscope.open_store(folder / "applied.parquet"))
    return {"applied": applied, "fixed": np.load(folder / "fixed.npy"), "page": page}


# Stores


def write_vectors(path: Path, X: np.ndarray) -> None:
    """Write float32 vectors with libraries other than isoscope, with labels and texts if the format supports them."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    (n, d), labels, words = X.shape, make_labels(len(X)), make_words(len(X))
    table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(X.ravel(), d), "label": labels, "text": words})
    ending = path.suffix
    if ending == ".npy":
        np.save(path, X)
    elif ending == ".npz":
        np.savez_compressed(path, vectors=X, label=labels, text=np.array(words))
    elif ending == ".safetensors":
        from safetensors.numpy import save_file

        save_file({"embeddings": X, "label": labels}, path)
    elif ending == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=130)
    elif ending == ".arrow":
        pa.feather.write_feather(table, str(path), compression="uncompressed", chunksize=130)
    elif ending == ".hdf5":
        import h5py

        with h5py.File(path, "w") as file:
            file["embeddings"], file["label"] = X, labels
            file.create_dataset("text", data=words, dtype=h5py.string_dtype())
    elif ending == ".fvecs":
        rows = np.empty(n, np.dtype([("d", "<i4"), ("x", "<f4", (d,))]))
        rows["d"], rows["x"] = d, X
        rows.tofile(path)
    elif ending == ".jsonl":
        rows = [{"text": words[i], "embedding": X[i].tolist(), "label": int(labels[i])} for i in range(n)]
        write_lines(path, *map(json.dumps, rows))
    elif ending == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(f"d{i}" for i in range(d)), "label", "text"])
            writer.writerows([i, *X[i].tolist(), labels[i], words[i]] for i in range(n))
    elif ending == ".vec":
        rows = zip(words, X, strict=True)
        write_lines(path, f"{n} {d}", *(" ".join([word, *map(str, row)]) for word, row in rows))
    elif ending == ".bin":
        rows = zip(words, X, strict=True)
        path.write_bytes(f"{n} {d}\n".encode() + b"".join(w.encode() + b" " + row.tobytes() + b"\n" for w, row in rows))
    else:
        raise ValueError(ending)


FORMATS = ["npy", "npz", "safetensors", "parquet", "arrow", "hdf5", "fvecs", "jsonl", "csv", "vec", "bin"]


@call(*FORMATS)
def store(folder: Path, ending: str) -> Parts:
    """A file in each format: read, measured, and copied to every format that can be written."""
    source, found = folder / f"cloud.{ending}", {}
    write_vectors(source, make_cloud(500, 12, dtype="float32"))
    opened = isoscope.open_store(source)
    for written in ("npy", "safetensors", "parquet"):
        isoscope.write_store(opened, folder / f"copy.{written}")
        found[written] = all_rows(isoscope.open_store(folder / f"copy.{written}"))
    return {
        "read": all_rows(opened),
        "some": opened.take([499, 0, 250, 0]),
        "batches": [batch.vectors for batch in opened.batches(rows=180)],
        "sketch": isoscope.sketch(source).scatter,
        "copies": found,
    }


@call()
def store_shards(folder: Path) -> Parts:
    """Folders of shards, binary and text."""
    X = make_cloud(500, 12, dtype="float32")
    for ending in ("parquet", "jsonl"):
        (folder / ending).mkdir()
        for i, part in enumerate(np.array_split(X, 11)):
            write_vectors(folder / ending / f"part-{i}.{ending}", part)
    return {ending: all_rows(isoscope.open_store(folder / ending)) for ending in ("parquet", "jsonl")}


# Embedding


@call()
def embed_tokens(folder: Path) -> Parts:
    """The token states of every layer of an encoder, in memory and in a folder, and an audit of each layer."""
    texts, labels = make_opinions(40)
    written = isoscope.embed(encoder(), texts, folder / "states", pool="tokens", labels=labels)
    layers = isoscope.audit(folder / "states", by="layer")
    return {
        "folder": all_rows(written),
        "memory": all_rows(isoscope.embed(encoder(), texts, pool="tokens", layers=[0, -1], window=8, stride=4)),
        "half": all_rows(
            isoscope.embed(encoder(), texts, pool="tokens", layers=1, dtype="float16", max_tokens=100, seed=1)
        ),
        "audit": layers.to_dict(),
        "page": page_of(layers, folder),
    }


@call()
def embed_pooled(folder: Path) -> Parts:
    """Texts embedded with an encoder and a decoder, as the mean, first or last token state."""
    texts = make_opinions(40)[0]
    pools = ("mean", "cls", "last")
    found = {pool: all_rows(isoscope.embed(encoder(), texts, pool=pool, layers="all")) for pool in pools}
    return found | {"decoder": all_rows(isoscope.embed(decoder(), texts, pool="last", layers=-1))}


@call()
def embed_words(folder: Path) -> Parts:
    """Texts embedded with word vectors."""
    numbers = np.random.default_rng(0).standard_normal((len(WORDS), 6)).astype("float32")
    write_lines(folder / "words.vec", *(" ".join([w, *map(str, x)]) for w, x in zip(WORDS, numbers, strict=True)))
    texts = make_opinions(40)[0]
    return {pool: all_rows(isoscope.embed(folder / "words.vec", texts, pool=pool)) for pool in ("tokens", "mean")}


# Training


@call()
def losses(folder: Path) -> Parts:
    """Every regularizer and its gradient, in float64, float32 and bfloat16."""
    import torch

    from isoscope.losses import CosReg, IStar, PersistentEntropy, UnbiasedIsoScore

    d, found = 16, {}
    shrunk = IStar(0.5, zeta=0.4)
    shrunk.refresh(np.diag(np.linspace(1, 2, d)))
    terms = {
        "istar": shrunk,
        "istar_alone": IStar(zeta=0),
        "unbiased": UnbiasedIsoScore(2),
        "cosreg": CosReg(1),
        "cosreg_reference": CosReg(-1, reference=True),
        "entropy": PersistentEntropy(noise_weight=0.05),
        "entropy_all_bars": PersistentEntropy(select=False, per_class=False),
    }
    for name, term in terms.items():
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            states = torch.from_numpy(make_cloud(48, d)).to(dtype).requires_grad_()
            value = term(states, torch.from_numpy(make_labels(48)))
            value.backward()
            found[f"{name}_{dtype}"] = {"value": value, "gradient": states.grad.double()}
    return found


def make_network() -> Any:
    """Return a small network with fixed weights."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2))


def train(model: Any, steps: int = 12, term: Callable[[], Any] | None = None, after: Any = None) -> None:
    """Train a network for a few steps, with a term added to the loss; then call `after` with the step."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, steps + 1):
        X = torch.from_numpy(make_cloud(32, 8, seed=step, dtype="float32"))
        loss = torch.nn.functional.cross_entropy(model(X), torch.arange(32) % 2)
        optimizer.zero_grad()
        (loss if term is None else loss + term()).backward()
        optimizer.step()
        if after is not None:
            after(step)


@call()
def attach(folder: Path) -> Parts:
    """The weights of a plain network and of a transformer after training with attached regularizers."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = make_network()
    with isoscope.attach(model, isoscope.losses.CosReg(0.5), layer=["1", "2"]) as regularizer:
        train(model, term=lambda: regularizer.term)
    torch.manual_seed(0)
    bert = AutoModelForSequenceClassification.from_pretrained(encoder()).train()
    for module in bert.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    texts, labels = make_opinions(24)
    batch = AutoTokenizer.from_pretrained(encoder())(texts, padding=True, return_tensors="pt")
    found = {}
    for name, term in {
        "unbiased": isoscope.losses.UnbiasedIsoScore(1),
        "entropy": isoscope.losses.PersistentEntropy(),
    }.items():
        bert.zero_grad()
        with isoscope.attach(bert, term):
            loss = bert(**batch, labels=torch.tensor(labels)).loss
        loss.backward()
        found[name] = {"loss": loss, "gradients": [p.grad for p in bert.parameters() if p.grad is not None]}
    with isoscope.training.Repairing(bert.eval(), isoscope.training.BatchRepair(2, 1)), torch.no_grad():
        found["repaired"] = bert(**batch).logits
    return {"network": model.state_dict(), **found}


@call()
def tracker(folder: Path) -> Parts:
    """The history of a tracker in a short training run."""
    import torch

    model = make_network()
    probe = [{"input": torch.from_numpy(make_cloud(64, 8, dtype="float32")), "labels": torch.arange(64) % 3}]
    found = isoscope.IsotropyTracker(probe, layer=["1", "2"], every=4, path=folder / "history.parquet")
    found.measure(model, step=0)
    train(model, after=lambda step: found.measure(model, step=step) if step % 4 == 0 else None)
    found.save_page(folder / "page.html")
    read = isoscope.History.read(folder / "history.parquet")
    page = Page((folder / "page.html").read_text(encoding="utf-8"))
    return {"history": list(found.history), "read": list(read), "page": page}


@call()
def finetune(folder: Path) -> Parts:
    """A few steps of fine-tuning a toy encoder with each regularizer, and with a repair inside the model."""
    splits = [
        isoscope.finetuning.Split(texts, None, np.array(labels))
        for texts, labels in (make_opinions(64), make_opinions(32, 1))
    ]
    task = isoscope.finetuning.Task("mood", *splits, ("bad", "good"), "accuracy")
    arms: dict[str, Any] = {
        "none": {"repair": isoscope.training.BatchRepair(2, 1), "seeds": [0, 1]},
        "persistent-entropy": {},
        "istar": {"zeta": 0.5},
        "unbiased": {"weight": -1.0, "accumulate": 2, "schedule": "linear"},
        "cosreg": {"group_lengths": True},
    }
    options = {"epochs": 1, "batch_size": 16, "learning_rate": 3e-3, "weight_decay": 0.01, "probe": 24, "every": 2}
    return {
        arm: isoscope.finetune(encoder(), task, output=folder / arm, regularizer=arm, **(options | more)).to_dict()
        for arm, more in arms.items()
    }


# Studies


def study_parts(name: str, folder: Path, **options: Any) -> Parts:
    """Run a study on toy models; return its arms, its claims and the numbers of its tables."""
    found = isoscope.run_study(name, output=folder / "run", data=folder / "data", **options).to_dict()
    claims = [{key: claim[key] for key in ("key", "holds", "cases")} for claim in found["claims"]]
    tables = [number for table in found["tables"] for _, number in leaves(table["rows"]) if is_number(number)]
    return {"arms": found["arms"], "claims": claims, "tables": tables}


@call()
def study_estimators(folder: Path) -> Parts:
    """Stable anisotropic regularization, part a: the estimators."""
    small = {"part": "a", "sizes": "8,40", "dimensions": 12, "draws": 4, "reference": 2000}
    (folder / "data").mkdir()
    return study_parts("stable-anisotropic-regularization", folder, quick=True, clouds="power law,isotropic", **small)


@call()
def study_shrink(folder: Path) -> Parts:
    """Shrink the longest, on generated CoLA files."""
    for split, count, seed in (("train", 96, 0), ("dev", 48, 1)):
        rows = zip(*make_opinions(count, seed), strict=True)
        write_lines(folder / "data" / "cola" / f"{split}.tsv", *(f"xx\t{label}\t\t{text}" for text, label in rows))
    small = {"tasks": "cola", "seeds": (0,), "epochs": 1, "batch_size": 16, "learning_rate": 3e-3, "limit": 48}
    small |= {"dev_limit": 32, "probe": 24, "measurements": 3}
    return study_parts("shrink-the-longest", folder, models=[encoder()], **small)


@call(one_thread=True)
def study_clusters(folder: Path) -> Parts:
    """Clusters and manifolds, on random running text."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 12)) for _ in range(100)]
    for split in ("train", "valid"):
        write_lines(folder / "data" / "ptb" / f"ptb.{split}.txt", *(f" {line} \n " for line in lines))
    small = {"tokens": 1_100, "window": 32, "k": 10, "lid_sample": 100, "cluster_sample": 120, "restarts": 1}
    small |= {"corpora": ("ptb",), "points": 50}
    return study_parts("clusters-and-manifolds", folder, models=[encoder()], quick=True, **small)


@call()
def study_words(folder: Path) -> Parts:
    """Isotropic word representation in BERT, on random pairs of sentences."""
    rng = np.random.default_rng(0)
    pairs = [f"{rng.random() * 5:.2f}\t{make_sentence(rng)}\t{make_sentence(rng)}" for _ in range(48)]
    rows = [f"{'ab'[i % 2]}\t{pair}" for i, pair in enumerate(pairs[:24])]
    for table in ("sts12/sts12", "sts12/sts12-train", "sts15/sts15"):
        write_lines(folder / "data" / f"{table}.tsv", "subset\tscore\tsentence1\tsentence2", *rows)
    for split in ("train", "dev", "test"):
        rows = [f"g\tf\ty\t{i:04d}\t{pair}" for i, pair in enumerate(pairs[24:])]
        write_lines(folder / "data" / "stsb" / f"sts-{split}.tsv", *rows)
    small = {"k": 2, "components": 1, "draws": (0,), "pairs": 20, "sets": ("sts15", "stsb-dev")}
    options = {"parts": ("layers", "sts"), "models": [encoder()]}
    return study_parts("isotropic-word-representation-in-bert", folder, **options, **small)


@call()
def study_classifiers(folder: Path) -> Parts:
    """Isotropy, clusters and classifiers, on generated sentences and pairs."""
    rng = np.random.default_rng(0)
    for name, words in (("neg", ("bad", "poor")), ("pos", ("good", "fine"))):
        write_lines(folder / "data" / "mr" / f"rt-polarity.{name}", *(make_sentence(rng, words) for _ in range(20)))
    labels = ("entailment", "not_entailment")
    rows = [f"{i}\t{make_sentence(rng)}\t{make_sentence(rng)}\t{labels[i % 2]}" for i in range(30)]
    for split in ("train", "dev"):
        write_lines(folder / "data" / "rte" / f"{split}.tsv", "index\tsentence1\tsentence2\tlabel", *rows)
    small = {"updates": 6, "every": 1, "moments": 3, "sample": 100, "tasks": "rte,polarity", "seeds": (0,)}
    return study_parts("isotropy-clusters-classifiers", folder, models=[encoder()], **small)


# Leaves and hashes


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the compared values of a result with their paths; arrays and files are single values, pages are skipped."""
    if path.endswith(IGNORED) or isinstance(value, Page):
        return
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if isinstance(value, Mapping):
        for name in value:
            yield from leaves(value[name], f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            yield from leaves(each, f"{path}/{i}")
    elif isinstance(value, np.generic):
        yield path, np.asarray(value)
    elif isinstance(value, str):
        if path.rpartition("/")[2] in IDENTIFIERS or "/roles/" in path:
            yield path, value
    elif value is None or isinstance(value, bool | int | float | bytes | np.ndarray):
        yield path, value
    else:
        raise TypeError(f"{path} is a {type(value).__name__}")


def is_number(leaf: Any) -> bool:
    """Return whether a leaf is a number."""
    return isinstance(leaf, int | float) and not isinstance(leaf, bool)


def describe(leaf: Any) -> str:
    """Return a leaf as text: its digest if it is an array or a file."""
    if isinstance(leaf, bytes):
        return f"file {hashlib.sha256(leaf).hexdigest()}"
    if not isinstance(leaf, np.ndarray):
        return repr(leaf)
    text = leaf.dtype.kind in "OUS"
    held = "\0".join(map(str, leaf.ravel().tolist())).encode() if text else np.ascontiguousarray(leaf).tobytes()
    kind = "text" if text else leaf.dtype.str
    return f"array {kind} {leaf.shape} {hashlib.sha256(held).hexdigest()}"


def numbers_in(leaf: Any) -> list[float]:
    """Return a few numbers from a leaf."""
    if isinstance(leaf, np.ndarray) and leaf.size and leaf.dtype.kind in "fiu":
        return [float(number) for number in spaced(leaf.ravel(), 3)]
    return [float(leaf)] if is_number(leaf) else []


def spaced(values: Any, count: int) -> list[Any]:
    """Return up to `count` values, evenly spaced."""
    if len(values) <= count:
        return list(values)
    return [values[i * (len(values) - 1) // (count - 1)] for i in range(count)]


def pages_in(value: Any) -> list[str]:
    """Return the texts of the pages in a call's result."""
    return [each.text for each in value.values() if isinstance(each, Page)]


def digest(lines: list[str]) -> str:
    """Return the SHA-256 of some lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@contextmanager
def limit_threads() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread, in this process and in commands that it runs."""
    from threadpoolctl import threadpool_limits

    before = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, "1"))
    try:
        with threadpool_limits(1):
            yield
    finally:
        os.environ.update(before)


def run(name: str) -> tuple[dict[str, Any], list[str]]:
    """Run a call; return its entry in the record, and a line for each leaf."""
    import torch

    encoder(), decoder()  # so that torch's random numbers are the same with --only
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (for libraries that use it)
    torch.manual_seed(0)
    threads = limit_threads() if name in ONE_THREAD else nullcontext()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, threads, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = CALLS[name](Path(folder))
        texts = [text.replace(folder, "FOLDER").replace(isoscope.__version__, "VERSION") for text in pages_in(parts)]
    lines, numbers, hashes = [], [], {}
    for part, value in sorted(parts.items()):
        if isinstance(value, Page):
            continue
        found = sorted(leaves(value, part), key=lambda pair: pair[0])
        told = [f"{path}\t{describe(leaf)}" for path, leaf in found]
        if not told:
            raise ValueError(f"{part} has no value to compare")
        hashes[part] = digest(told)[:12]
        lines += told
        numbers += [number for _, leaf in found for number in numbers_in(leaf)]
    entry = {"sha256": digest(lines), "values": [repr(number) for number in spaced(numbers, VALUES)], "parts": hashes}
    return entry | ({"page": digest(texts)} if texts else {}), lines


def machine() -> str:
    """Return, as text, what rounding depends on: the BLAS kernels for this CPU, and the versions of the libraries."""
    import scipy
    import sklearn
    import torch
    from threadpoolctl import threadpool_info

    blas = sorted({f"{i['internal_api']} {i['version']} {i.get('architecture')}" for i in threadpool_info()})
    versions = [f"{each.__name__} {each.__version__}" for each in (np, scipy, sklearn, torch)]
    return ", ".join([platform.machine(), *(each for each in blas if "blas" in each), *versions])


def compare(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any], pages: bool) -> str:
    """Return, as text, how a call differs from its record; empty if it does not."""
    if old is None:
        return f"{name}: not recorded"
    told = []
    if old["sha256"] != new["sha256"]:
        names = sorted(old["parts"].keys() | new["parts"].keys())
        told.append("differs in " + ", ".join(n for n in names if old["parts"].get(n) != new["parts"].get(n)))
        told.append(largest_difference(old["values"], new["values"]))
    if pages and old.get("page") != new.get("page"):
        told.append("page differs")
    return f"{name}: {'; '.join(told)}" if told else ""


def largest_difference(old: list[str], new: list[str]) -> str:
    """Return, as text, the largest relative difference between recorded values."""
    if len(old) != len(new):
        return f"{len(new)} values instead of {len(old)}"
    pairs = [(float(a), float(b)) for a, b in zip(old, new, strict=True) if a != b]
    if not pairs:
        return f"the {len(old)} recorded values agree"
    worst = max((abs(a - b) / max(abs(a), abs(b)) for a, b in pairs), key=lambda share: (share != share, share))
    return f"largest relative difference {worst:.3g} ({len(pairs)} of {len(old)} recorded values differ)"


def main() -> int:
    """Run the calls, then record or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the results instead of comparing them")
    parser.add_argument("--against", type=Path, default=RECORD, metavar="FILE", help="the record to compare with")
    parser.add_argument(
        "--only", action="append", metavar="PATTERN", help="run only calls whose name matches, such as 'audit*'"
    )
    parser.add_argument("--pages", action="store_true", help="compare HTML pages too")
    parser.add_argument("--leaves", type=Path, metavar="FILE", help="write every compared value to a text file")
    parser.add_argument("--blas-threads", default=ENVIRONMENT["OPENBLAS_NUM_THREADS"], metavar="N")
    parser.add_argument("--omp-threads", default=ENVIRONMENT["OMP_NUM_THREADS"], metavar="N")
    asked = parser.parse_args()
    wanted = ENVIRONMENT | {"OPENBLAS_NUM_THREADS": asked.blas_threads, "OMP_NUM_THREADS": asked.omp_threads}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    names = [name for name in CALLS if not asked.only or any(fnmatchcase(name, each) for each in asked.only)]
    if not names:
        parser.error(f"no call matches {', '.join(asked.only)}: choose from {', '.join(CALLS)}")
    target = asked.record or asked.against
    record = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    if not asked.record and record.get("machine") not in (None, machine()):
        print(f"recorded on another machine ({record['machine']}); this is {machine()}")
    found: dict[str, Any] = {}
    lines: list[str] = []
    differing = 0
    for name in names:
        began = time.monotonic()
        try:
            found[name], own = run(name)
            told = "" if asked.record else compare(name, record.get(name), found[name], asked.pages)
            lines += [f"{name}\t{line}" for line in own]
        except Exception as error:
            told = f"{name}: {type(error).__name__}: {error}"
        differing += bool(told)
        if told:
            print(told, flush=True)
        if sys.stderr.isatty() or asked.record:
            print(f"{name:32} {time.monotonic() - began:5.1f} s", file=sys.stderr, flush=True)
    if asked.leaves:
        asked.leaves.write_text("\n".join([*lines, ""]), encoding="utf-8")
    if asked.record:
        kept = record if asked.only else {}
        asked.record.write_text(json.dumps(kept | {"machine": machine()} | found, indent=1) + "\n", encoding="utf-8")
        print(f"{len(found)} calls recorded, {differing} failed")
    else:
        print(f"{len(names) - differing} calls identical" + (f", {differing} differ" if differing else ""))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
