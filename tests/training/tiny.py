"""A model of two layers, and texts of equal length for it; training takes a second."""

from __future__ import annotations

from typing import Any

from tests.training import models
from tests.training.models import WORDS, torch

LENGTH = 10


def bert() -> Any:
    return models.bert(num_hidden_layers=2)


def texts(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Items of a dataset: tokens, a mask with some padding, and a class that the first token determines."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, WORDS, (count, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < torch.randint(5, LENGTH + 1, (count, 1), generator=generator)).long()
    return [{"input_ids": i, "attention_mask": m, "labels": i[0] % 2} for i, m in zip(ids, mask, strict=True)]


def batches(count: int, size: int = 16, seed: int = 0) -> list[dict[str, Any]]:
    items = texts(count, seed)
    parts = [items[i : i + size] for i in range(0, count, size)]
    return [{key: torch.stack([item[key] for item in part]) for key in part[0]} for part in parts]


def weights(model: Any) -> list[bytes]:
    """Return the bytes of all parameters of a model."""
    return [each.detach().numpy().tobytes() for each in model.state_dict().values()]
