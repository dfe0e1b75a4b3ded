"""Embed the advisor's datasets with a sentence encoder and with a language model.

Each text is truncated at 128 tokens and embedded as the mean of its token states in the model's last layer. The vectors
of the sentence encoder are normalized to unit length, as in its training.

python benchmarks/advisor_data.py DATA MODELS OUT

DATA contains the folders `stsb`, `cranfield`, `banking77` and `scifact` as their authors published them. MODELS
contains a folder for each model. Existing files in OUT are kept.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MODELS = {"encoder": "all-MiniLM-L6-v2", "lm": "SmolLM2-135M-Instruct-dequantQ4_1"}
"""The name of each model in the output files, and its folder."""
TRAINED_UNIT = {"encoder"}
MOST_TOKENS, BATCH_TOKENS = 128, 4096

Texts = dict[str, list[str]]


def stsb(data: Path, out: Path) -> Iterator[tuple[str, Texts]]:
    """Yield the distinct sentences of each split, and write its graded pairs to a file."""
    for part in ("dev", "test"):
        with open(data / "stsb" / f"sts-{part}.tsv", encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        pairs = [(row[5], row[6], row[4]) for row in rows]
        sentences = list(dict.fromkeys(text for a, b, _ in pairs for text in (a, b)))
        number = {text: f"s{i}" for i, text in enumerate(sentences)}
        _write_tsv(
            out / f"stsb-{part}-pairs.tsv",
            ["id1", "id2", "score"],
            [(number[a], number[b], score) for a, b, score in pairs],
        )
        yield f"stsb-{part}", {"id": list(number.values()), "text": sentences}


def scifact(data: Path, out: Path) -> Iterator[tuple[str, Texts]]:
    """Yield the abstracts and the claims of both splits, and write the judgments to files in BEIR format."""
    with gzip.open(data / "scifact" / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    texts = [" ".join([document["title"], *document["abstract"]]) for document in documents]
    yield "scifact-corpus", {"id": [str(document["doc_id"]) for document in documents], "text": texts}
    for part in ("train", "dev"):
        with open(data / "scifact" / f"claims_{part}.tsv", encoding="utf-8") as file:
            claims = [line.rstrip("\n").split("\t") for line in file][1:]
        qrels = (data / "scifact" / f"qrels_{part}.tsv").read_text(encoding="utf-8")
        (out / f"scifact-{part}-qrels.tsv").write_text(qrels, encoding="utf-8")
        yield f"scifact-{part}", {"id": [claim[0] for claim in claims], "text": [claim[1] for claim in claims]}


def cranfield(data: Path, out: Path) -> Iterator[tuple[str, Texts]]:
    """Yield the non-empty abstracts and the queries, and write the judgments; codes 1 to 4 count as relevant."""
    known: set[str] = set()
    for name, ids in (("docs", "doc_id"), ("queries", "query_id")):
        with open(data / "cranfield" / f"{name}.tsv", encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["text"].strip()]
        known |= {row[ids] for row in rows if name == "docs"}
        yield f"cranfield-{name}", {"id": [row[ids] for row in rows], "text": [row["text"] for row in rows]}
    with open(data / "cranfield" / "qrels.tsv", encoding="utf-8", newline="") as file:
        judged = [row for row in csv.DictReader(file, delimiter="\t") if int(row["cranfield_code"]) > 0]
    rows = [(row["query_id"], row["doc_id"], "1") for row in judged if row["doc_id"] in known]
    _write_tsv(out / "cranfield-qrels.tsv", ["query_id", "doc_id", "score"], rows)


def banking77(data: Path, out: Path) -> Iterator[tuple[str, Texts]]:
    """Yield the questions and their intents."""
    for part in ("train", "test"):
        with open(data / "banking77" / f"{part}.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        yield f"banking77-{part}", {"text": [row["text"] for row in rows], "label": [row["category"] for row in rows]}


def _write_tsv(path: Path, head: list[str], rows: list[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in [tuple(head), *rows]), encoding="utf-8")


def embed(texts: list[str], folder: Path, *, unit: bool) -> np.ndarray:
    """Return the mean of each text's token states in the last layer."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.padding_side = "right"
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=MOST_TOKENS)["input_ids"]]
    order = np.argsort(lengths, kind="stable")
    found = np.zeros((len(texts), model.config.hidden_size), np.float32)
    start = 0
    while start < len(texts):
        stop = start + 1
        while stop < len(texts) and lengths[order[stop]] * (stop + 1 - start) <= BATCH_TOKENS:
            stop += 1
        chosen = order[start:stop]
        batch = tokenizer(
            [texts[i] for i in chosen], truncation=True, max_length=MOST_TOKENS, padding=True, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][:, :, None].to(states.dtype)
        means = (states * mask).sum(dim=1) / mask.sum(dim=1)
        found[chosen] = (torch.nn.functional.normalize(means, dim=1) if unit else means).numpy()
        start = stop
        print(f"\r  {start:,} of {len(texts):,}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return found


def main() -> None:
    """Write the missing files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "models", "out"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for model, folder in MODELS.items():
        for make in (stsb, cranfield, banking77, scifact):
            for name, columns in make(arguments.data, arguments.out):
                target = arguments.out / f"{name}-{model}.parquet"
                if target.exists():
                    continue
                print(f"{target.name}", file=sys.stderr)
                vectors = embed(columns["text"], arguments.models / folder, unit=model in TRAINED_UNIT)
                lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
                beside = target.with_suffix(".part")
                pq.write_table(pa.table({"embedding": lists, **columns}), beside)
                beside.replace(target)


if __name__ == "__main__":
    main()
