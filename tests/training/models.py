"""Tiny random models of several kinds and batches for them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

WORDS = 90
_SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}


def bert(**more: Any) -> Any:
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=WORDS, **_SIZES | more))


def llama(**more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, pad_token_id=0, bos_token_id=1, eos_token_id=2, num_labels=2, **_SIZES | more
    )
    return transformers.LlamaForSequenceClassification(config)


def items(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Texts of random tokens and lengths, of two classes."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 12, (count,), generator=generator).tolist()
    return [
        {"input_ids": torch.randint(3, WORDS, (n,), generator=generator).tolist(), "labels": i % 2}
        for i, n in enumerate(lengths)
    ]


def collate(found: list[dict[str, Any]], *, extra: int = 0, left: bool = False) -> dict[str, Any]:
    """A batch padded to its longest text, and by `extra` positions more."""
    longest = max(len(item["input_ids"]) for item in found) + extra
    ids = torch.zeros(len(found), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, item in enumerate(found):
        n = len(item["input_ids"])
        place = slice(longest - n, None) if left else slice(n)
        ids[row, place] = torch.tensor(item["input_ids"])
        mask[row, place] = 1
    labels = torch.tensor([item["labels"] for item in found])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def gradients(model: Any) -> dict[str, Any]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def hooks(model: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
