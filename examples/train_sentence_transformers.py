"""Add a regularizer to the Sentence Transformers trainer: attach it to the loss, which contains the model.

python examples/train_sentence_transformers.py [MODEL]
requires: pip install "isoscope[train,sentence-transformers]" datasets
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files

import pyarrow.parquet as pq
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import isoscope
from isoscope.losses import UnbiasedIsoScore


def main(name: str = "sentence-transformers/all-MiniLM-L6-v2", rows: int = 640) -> None:
    # "captive: a person held in the grip …": train each word to be near its definition
    texts = pq.read_table(files("isoscope") / "demo" / "glosses-layer6.parquet", columns=["text"])["text"].to_pylist()
    words, meanings = zip(*(text.split(": ", 1) for text in texts), strict=True)
    model = SentenceTransformer(name)
    ranking = MultipleNegativesRankingLoss(model)

    def measure_isoscore() -> float:
        return float(isoscope.isoscore(model.encode(meanings[rows:]), unbiased=True))

    before = measure_isoscore()
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            tempfile.mkdtemp(),
            num_train_epochs=1,
            per_device_train_batch_size=32,
            logging_steps=5,
            save_strategy="no",
            report_to=[],
        ),
        train_dataset=Dataset.from_dict({"anchor": words[:rows], "positive": meanings[:rows]}),
        loss=ranking,
    )
    # layer="model" is the sentence embedding, after pooling
    with isoscope.attach(ranking, UnbiasedIsoScore(weight=0.01), layer="model") as regularizer:
        regularizer.follow(trainer)
        trainer.train()
    print(f"IsoScore of held-out definitions: {before:.3f} → {measure_isoscore():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
