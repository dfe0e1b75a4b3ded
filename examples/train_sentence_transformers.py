"""A regulariser on Sentence Transformers' trainer: on the loss, which holds the model.

python examples/train_sentence_transformers.py [MODEL]
needs: pip install "isoscope[train,sentence-transformers]" datasets
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
    # "captive: a person held in the grip …": a word is to be near to its definition
    texts = pq.read_table(files("isoscope") / "demo" / "glosses-layer6.parquet", columns=["text"])["text"].to_pylist()
    words, meanings = zip(*(text.split(": ", 1) for text in texts), strict=True)
    model = SentenceTransformer(name)
    ranking = MultipleNegativesRankingLoss(model)

    def spread() -> float:
        return float(isoscope.isoscore(model.encode(meanings[rows:]), unbiased=True))

    before = spread()
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
    # layer="model" is the sentence embedding itself, after the pooling
    with isoscope.attach(ranking, UnbiasedIsoScore(weight=1.0), layer="model") as regularizer:
        regularizer.follow(trainer)
        trainer.train()
    print(f"IsoScore of definitions it has not seen: {before:.3f} → {spread():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
