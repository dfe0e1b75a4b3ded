"""The pooling mode that suits a model."""

from __future__ import annotations

import pytest

from tests.training.models import WORDS, bert, llama, torch, transformers

from isoscope.training.layers import default_pool  # isort: skip

SIZES = {"vocab_size": WORDS, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 16, "d_kv": 8}


def t5():
    return transformers.T5Model(transformers.T5Config(**SIZES))


def gpt2():
    return transformers.GPT2Model(transformers.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=2, n_head=2))


def bloom():
    """A model whose attention has no attribute that marks it as causal."""
    return transformers.BloomModel(transformers.BloomConfig(vocab_size=WORDS, hidden_size=16, n_layer=2, n_head=2))


def deberta():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return transformers.DebertaV2Model(transformers.DebertaV2Config(vocab_size=WORDS, **sizes))


def torch_encoder():
    return torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), 2)


CASES = {
    "encoder": (bert, [-1], "cls"),
    "every layer of an encoder": (bert, [0, 1, 2, 3], "cls"),
    "its pooler": (bert, ["bert.pooler"], "cls"),
    "encoder used as decoder": (lambda: bert(is_decoder=True), [-1], "last"),
    "decoder": (llama, [-1], "last"),
    "its final norm": (llama, ["model.norm"], "last"),
    "GPT-2": (gpt2, [1], "last"),
    "known by its configuration": (bloom, [-1], "last"),
    "encoder known by its configuration": (deberta, [-1], "cls"),
    "encoder of two": (t5, ["encoder.block.1"], "cls"),
    "decoder of two": (t5, ["decoder.block.1"], "last"),
    "torch's own encoder": (torch_encoder, [-1], "cls"),
    "no attention": (lambda: torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)), ["0"], "cls"),
}


@pytest.mark.parametrize(("make", "layers", "pool"), CASES.values(), ids=CASES.keys())
def test_default_pool_is_last_for_causal_models(make, layers, pool):
    assert default_pool(make(), layers) == pool
