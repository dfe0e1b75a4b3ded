"""Add a regularizer and a tracker to the Hugging Face Trainer.

python examples/train_hugging_face.py [MODEL]     MODEL: a name or a folder; requires: pip install "isoscope[train]"
torchrun --nproc-per-node 2 examples/train_hugging_face.py     two processes share each batch
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet as pq
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import isoscope
from isoscope.losses import PersistentEntropy


def main(name: str = "sentence-transformers/all-MiniLM-L6-v2", rows: int = 640) -> None:
    # WordNet definitions with their categories, included with isoscope
    table = pq.read_table(files("isoscope") / "demo" / "glosses-layer6.parquet", columns=["text", "label"]).to_pydict()
    classes = sorted(set(table["label"]))
    tokenizer = AutoTokenizer.from_pretrained(name)
    items = [
        {"input_ids": ids, "labels": classes.index(label)}
        for ids, label in zip(
            tokenizer(table["text"], truncation=True, max_length=32)["input_ids"], table["label"], strict=True
        )
    ]
    collate = DataCollatorWithPadding(tokenizer)
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=len(classes))
    folder = Path(tempfile.mkdtemp())

    trainer = Trainer(
        model,
        TrainingArguments(
            str(folder),
            num_train_epochs=1,
            per_device_train_batch_size=32,
            learning_rate=5e-5,
            warmup_steps=0.1,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
        ),
        train_dataset=items[:rows],
        data_collator=collate,
    )

    probe = [collate(items[start : start + 64]) for start in range(rows, rows + 256, 64)]
    tracker = isoscope.IsotropyTracker(probe, layer="all", every=10, path=folder / "history.parquet")
    tracker.follow(trainer)
    isoscope.attach(model, PersistentEntropy(weight=0.1)).follow(trainer)

    trainer.train()
    tracker.save_page(folder / "training.html")
    print(f"open {folder / 'training.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
