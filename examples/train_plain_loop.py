"""Use a regularizer in your own training loop and measure its effect on the space.

python examples/train_plain_loop.py [MODEL]     MODEL: a name or a folder; requires: pip install "isoscope[train]"
"""

from __future__ import annotations

import sys
from importlib.resources import files

import pyarrow.parquet as pq
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

import isoscope
from isoscope.losses import IStar


class Classifier(nn.Module):
    """A classifier; any torch module works."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, 0])


def main(name: str = "sentence-transformers/all-MiniLM-L6-v2", steps: int = 20) -> None:
    # WordNet definitions with their categories, included with isoscope
    table = pq.read_table(files("isoscope") / "demo" / "glosses-layer6.parquet", columns=["text", "label"]).to_pydict()
    classes = sorted(set(table["label"]))
    tokenizer = AutoTokenizer.from_pretrained(name)
    torch.manual_seed(0)
    model = Classifier(AutoModel.from_pretrained(name), len(classes)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)

    def batch(start: int, size: int = 32) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        part = slice(start * size, (start + 1) * size)
        words = tokenizer(table["text"][part], padding=True, truncation=True, max_length=32, return_tensors="pt")
        inputs = {key: words[key] for key in ("input_ids", "attention_mask")}
        return inputs, torch.tensor([classes.index(label) for label in table["label"][part]])

    probe = [batch(start)[0] for start in range(40, 46)]
    tracker = isoscope.IsotropyTracker(probe, layer=-1)
    before = tracker.measure(model, step=0)[0]

    with isoscope.attach(model, IStar(weight=1.0)) as regularizer:  # on the tokens of all layers, as in the paper
        regularizer.refresh([batch(start)[0] for start in range(40)], states=20_000)  # once per epoch
        for step in range(steps):
            inputs, labels = batch(step)
            loss = nn.functional.cross_entropy(model(**inputs), labels) + regularizer.term
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step + 1:2d}  loss {loss.item():.3f}  (regularizer: {regularizer.value:.3f})")

    after = tracker.measure(model, step=steps)[0]
    for key in ("isoscore_unbiased", "mean_cosine", "anisotropy_1_centered"):
        print(f"{key:22s} {before[key]:.3f} → {after[key]:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
