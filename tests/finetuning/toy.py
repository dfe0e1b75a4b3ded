"""Tiny models with random weights and tokenizers with a few words, which are created quickly."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np

WORDS = [*"abcdefghijklmnopqrstuvwxyz", "good", "bad", "fine", "poor", "the", "film", "is", "was", "very", "not"]
GOOD, BAD = ("good", "fine"), ("bad", "poor")


@contextmanager
def one_thread():
    """Run torch on one thread: tests run in parallel, and such small models gain nothing from more threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tokenizer(*, classifying: bool):
    """A word tokenizer with [CLS] and padding for encoders, or only an end-of-text token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] if classifying else ["<unk>", "<eos>"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=special[1 if classifying else 0]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if not classifying:
        return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<eos>")
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, **names, model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    )


def encoder(folder: Path, layers: int = 2) -> Path:
    """A folder with a BERT of 32 dimensions."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    words = tokenizer(classifying=True)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def decoder(folder: Path) -> Path:
    """A folder with a Llama of 32 dimensions, whose tokenizer has no padding token."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    words = tokenizer(classifying=False)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        eos_token_id=words.eos_token_id,
        bos_token_id=words.eos_token_id,
    )
    LlamaModel(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def opinions(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Return sentences of different lengths, and whether each contains a good word."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        label = int(rng.integers(2))
        words = list(rng.choice(WORDS[:26], rng.integers(2, 9)))
        words.insert(int(rng.integers(len(words))), str(rng.choice(GOOD if label else BAD)))
        texts.append("the film is " + " ".join(words))
        labels.append(label)
    return texts, labels


def write_glue(folder: Path, rows: int = 96, dev_rows: int = 48) -> Path:
    """CoLA's files with made-up sentences, in a folder of data."""
    (folder / "cola").mkdir(parents=True)
    for name, count, seed in (("train", rows, 0), ("dev", dev_rows, 1)):
        lines = [f"xx\t{label}\t\t{text}\n" for text, label in zip(*opinions(count, seed), strict=True)]
        (folder / "cola" / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder
