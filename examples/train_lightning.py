"""Add a regularizer and a tracker to a Lightning module.

python examples/train_lightning.py [MODEL]     a name or a folder; requires: pip install "isoscope[train]" lightning
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pyarrow.parquet as pq
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

import isoscope
from isoscope.losses import CosReg


class Classifier(lightning.LightningModule):
    """A classifier; the regularizer needs no change to it."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        self.model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=classes).train()

    def forward(self, **batch: torch.Tensor) -> Any:
        return self.model(**batch)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self(**batch).loss
        self.log("task", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=5e-5)


def main(name: str = "sentence-transformers/all-MiniLM-L6-v2", rows: int = 640) -> None:
    # WordNet definitions with their categories, included with isoscope
    table = pq.read_table(files("isoscope") / "demo" / "glosses-layer6.parquet", columns=["text", "label"]).to_pydict()
    classes = sorted(set(table["label"]))
    tokenizer = AutoTokenizer.from_pretrained(name)
    tokens = tokenizer(table["text"], truncation=True, max_length=32)["input_ids"]
    items = [
        {"input_ids": ids, "labels": classes.index(label)} for ids, label in zip(tokens, table["label"], strict=True)
    ]
    collate = DataCollatorWithPadding(tokenizer)
    module, folder = Classifier(name, len(classes)), Path(tempfile.mkdtemp())
    trainer = lightning.Trainer(max_epochs=1, default_root_dir=folder, enable_checkpointing=False, log_every_n_steps=5)

    probe = [collate(items[start : start + 64]) for start in range(rows, rows + 256, 64)]
    tracker = isoscope.IsotropyTracker(probe, layer=-1, every=10, path=folder / "history.parquet")
    tracker.follow(trainer)
    isoscope.attach(module, CosReg(weight=0.1)).follow(trainer)

    loader = torch.utils.data.DataLoader(items[:rows], batch_size=32, shuffle=True, collate_fn=collate)
    trainer.fit(module, loader)
    tracker.save_page(folder / "training.html")
    print(f"open {folder / 'training.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
