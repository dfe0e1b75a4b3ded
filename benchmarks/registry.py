"""Measure the sentence encoders of the registry on the glosses of the demo, and write registry.json.

python benchmarks/registry.py MODELS [NAME…] [--page docs/threshold.md]

MODELS is a folder with one subfolder per model. An existing entry is not replaced: it is measured again and must agree
to 1e-3, unless it is removed from the file first. NAME selects some of the models. Models without a subfolder are
skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import isoscope
from isoscope._io.progress import ignore_progress
from isoscope.auditing.measure import Settings, measure_cosines
from isoscope.auditing.similarity import Similarity
from isoscope.engines.engine import LocalEngine
from isoscope.stores.open import open_store
from isoscope.thresholding.registry import SCHEMA, hash_weights
from pages import write_table

TOLERANCE = 1e-3
PATH = Path(__file__).parents[1] / "src" / "isoscope" / "thresholding" / "registry.json"
CORPUS = "1,750 WordNet glosses, the texts of isoscope demo"


@dataclass(frozen=True)
class Model:
    """A model folder, and how it is named and used."""

    folder: str
    name: str
    model: str
    precision: str
    pooling: str
    options: dict[str, Any]
    prompt: str = ""


MODELS = [
    Model("all-MiniLM-L6-v2", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "fp32", "mean", {}),
    Model("all-mpnet-base-v2", "all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2", "fp32", "mean", {}),
    Model("gte-small", "gte-small", "thenlper/gte-small", "fp32", "mean", {"pool": "mean"}),
    Model(
        "bge-small-en-v1.5-f16",
        "bge-small-en-v1.5 (fp16)",
        "BAAI/bge-small-en-v1.5",
        "fp16",
        "[CLS]",
        {"pool": "cls"},
    ),
    Model(
        "granite-embedding-30m-english-dequantInt8",
        "granite-embedding-30m-english (int8)",
        "ibm-granite/granite-embedding-30m-english",
        "int8",
        "[CLS]",
        {"pool": "cls"},
    ),
    Model(
        "nomic-embed-text-v1.5-f16",
        "nomic-embed-text-v1.5 (fp16)",
        "nomic-ai/nomic-embed-text-v1.5",
        "fp16",
        "mean",
        {"pool": "mean"},
        "search_document: ",
    ),
]


def measure(folder: Path, model: Model, texts: list[str]) -> tuple[dict[str, Any], Similarity]:
    """Return the entry of a model, and the quantiles of its cosines."""
    store = isoscope.embed(str(folder), [model.prompt + text for text in texts], **model.options)
    vectors = store.take(np.arange(len(store)))
    sums = isoscope.sketch(vectors)
    similarity = Similarity.of(
        *measure_cosines(open_store(vectors), settings=Settings(), progress=ignore_progress, engine=LocalEngine())
    )
    entry = {
        "model": model.model,
        "revision": hash_weights(folder),
        "precision": model.precision,
        "pooling": model.pooling,
        "prompt": model.prompt,
        "rows": sums.n,
        "dimensions": sums.d,
        "isoscope": isoscope.__version__,
        "isoscore": round(float(sums.isoscore(unbiased=True)), 5),
        "mean_cosine": round(float(sums.mean_cosine()), 5),
        "floor": round(float(np.interp(0.5, similarity.shares, similarity.pairs)), 5),
        "pairs": np.round(similarity.pairs, 5).tolist(),
        "nearest": np.round(similarity.nearest, 5).tolist(),
        "pairs_below": np.round(similarity.pairs_below, 7).tolist(),
        "nearest_below": np.round(similarity.nearest_below, 7).tolist(),
    }
    return entry, similarity


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the fields in which two entries differ: numbers by more than the tolerance, other values at all."""
    found = []
    for field, value in old.items():
        if field == "isoscope":
            continue
        if isinstance(value, float | list):
            gap = float(np.max(np.abs(np.subtract(value, new[field]))))
            if not gap <= TOLERANCE:
                found.append(f"{field} by {gap:.2g}")
        elif value != new[field]:
            found.append(f"{field} ({value} and {new[field]})")
    return found


def write(content: dict[str, Any]) -> None:
    """Write the registry, with one line per field so that changes are easy to read."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items() if key != "models"]
    models = []
    for name, entry in content["models"].items():
        own = ",\n".join(f"      {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
        models.append(f"    {json.dumps(name)}: {{\n{own}\n    }}")
    lines.append('  "models": {\n' + ",\n".join(models) + "\n  }")
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def table(content: dict[str, Any]) -> str:
    """Return the entries as a table."""
    lines = [
        "| entry | weights | dimensions | median cosine of random pairs | 99.9% of pairs below | median cosine of "
        "nearest neighbors | IsoScore |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, entry in content["models"].items():
        rare = float(np.interp(0.999, content["shares"], entry["pairs"]))
        nearest = float(np.interp(0.5, content["shares"], entry["nearest"]))
        lines.append(
            f"| {name} | {entry['precision']} | {entry['dimensions']} | {entry['floor']:.3f} | {rare:.3f} | "
            f"{nearest:.3f} | {entry['isoscore']:.3f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure the models, check existing entries, and add missing ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", type=Path, help="write the table of entries into this page")
    arguments = parser.parse_args()
    with (files("isoscope") / "demo" / "glosses-layer6.parquet").open("rb") as file:
        texts = pq.read_table(file)["text"].to_pylist()
    content: dict[str, Any] = {"schema": SCHEMA, "corpus": CORPUS, "models": {}}
    if PATH.exists():
        content = json.loads(PATH.read_text(encoding="utf-8"))
    failed = False
    for model in MODELS:
        folder = arguments.models / model.folder
        if arguments.names and model.folder not in arguments.names and model.name not in arguments.names:
            continue
        if not folder.is_dir():
            print(f"{model.name}: skipped, because {model.folder} is missing")
            continue
        entry, similarity = measure(folder, model, texts)
        content |= {"shares": similarity.shares.tolist(), "cosines": similarity.cosines.tolist()}
        old = content["models"].get(model.name)
        shape = (
            f"median cosine {entry['floor']:.3f}, IsoScore {entry['isoscore']:.3f}, {entry['dimensions']} dimensions"
        )
        if old is None:
            content["models"][model.name] = entry
            content["models"] = {m.name: content["models"][m.name] for m in MODELS if m.name in content["models"]}
            write(content)
            print(f"{model.name}: added ({shape})", flush=True)
        elif found := differences(old, entry):
            failed = True
            print(f"{model.name}: differs in {'; '.join(found)}", flush=True)
        else:
            print(f"{model.name}: agrees to {TOLERANCE:g} ({shape})", flush=True)
    if arguments.page is not None:
        write_table(arguments.page, table(content), "registry")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
