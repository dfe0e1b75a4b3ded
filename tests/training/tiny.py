"""Tiny random models, and texts of random tokens for them: what trains here trains in a second."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForSequenceClassification

WORDS, LENGTH = 40, 10


def bert(seed: int = 0, **more) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    config = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config |= {"intermediate_size": 48, "max_position_embeddings": 16, "num_labels": 2}
    return BertForSequenceClassification(BertConfig(**config | more))


def texts(count: int, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Items of a dataset: tokens, a mask with some padding, and a class that the first token tells."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, WORDS, (count, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < torch.randint(5, LENGTH + 1, (count, 1), generator=generator)).long()
    return [{"input_ids": i, "attention_mask": m, "labels": i[0] % 2} for i, m in zip(ids, mask, strict=True)]


def batches(count: int, size: int = 16, seed: int = 0) -> list[dict[str, torch.Tensor]]:
    items = texts(count, seed)
    parts = [items[i : i + size] for i in range(0, count, size)]
    return [{key: torch.stack([item[key] for item in part]) for key in part[0]} for part in parts]


def weights(model: torch.nn.Module) -> list[bytes]:
    """Every bit of a model."""
    return [each.detach().numpy().tobytes() for each in model.state_dict().values()]
