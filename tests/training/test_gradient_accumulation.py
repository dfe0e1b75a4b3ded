"""The ratio of term and loss does not depend on accumulation, whether or not the model uses the number of labels."""

from __future__ import annotations

import inspect

import pytest

from tests.training.models import WORDS, torch, transformers

from isoscope import attach  # isort: skip
from isoscope.losses import CosReg
from isoscope.training.gradient_accumulation import uses_num_items_in_batch

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXTS = SIZES | {"vocab_size": WORDS}
KINDS = {
    "BertForSequenceClassification": ("BertConfig", TEXTS),
    "BertForTokenClassification": ("BertConfig", TEXTS),
    "BertForMaskedLM": ("BertConfig", TEXTS),
    "BertLMHeadModel": ("BertConfig", TEXTS | {"is_decoder": True}),
    "ModernBertForMaskedLM": ("ModernBertConfig", TEXTS | MARKS | {"cls_token_id": 3, "sep_token_id": 4}),
    "LlamaForCausalLM": ("LlamaConfig", TEXTS | MARKS),
    "LlamaForSequenceClassification": ("LlamaConfig", TEXTS | MARKS),
    "GPT2LMHeadModel": ("GPT2Config", MARKS | {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "ViTForImageClassification": ("ViTConfig", SIZES | {"image_size": 16, "patch_size": 8}),
}


def made(name):
    config, settings = KINDS[name]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**settings)).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def batch(name):
    generator = torch.Generator().manual_seed(0)
    if "Image" in name:
        return {"pixel_values": torch.randn(6, 3, 16, 16, generator=generator), "labels": torch.arange(6) % 2}
    ids = torch.randint(5, WORDS, (6, 8), generator=generator)
    labels = {"Seq": torch.arange(6) % 2, "Tok": ids % 2}
    return {"input_ids": ids, "labels": next((each for key, each in labels.items() if f"For{key}" in name), ids)}


@pytest.mark.parametrize("name", KINDS)
def test_term_is_scaled_like_the_loss_in_gradient_accumulation(name):
    model, given = made(name), batch(name)
    shifts = name.endswith("CausalLM")
    count = (given["labels"][..., 1:] if shifts else given["labels"]).numel()
    plain, part = (float(model(**given, **more).loss.detach()) for more in ({}, {"num_items_in_batch": 4 * count}))
    with attach(model, CosReg()) as attachment:
        values = []
        for more in ({}, {"num_items_in_batch": torch.tensor(4 * count)}):
            model(**given, **more)
            values.append(attachment.value)
    if name in ("GPT2LMHeadModel", "BertLMHeadModel"):  # the trainer counts a label more than they have predictions
        part *= 8 / 7
    assert values[1] / values[0] == pytest.approx(part / plain, rel=1e-3)


def test_model_without_source_does_not_use_num_items_in_batch():
    namespace = {}
    exec("def forward(self, x, **kwargs): return self.loss_function(x, **kwargs)", namespace)
    kind = type("Made", (torch.nn.Module,), {"forward": namespace["forward"]})
    with pytest.raises(OSError, match="source"):
        inspect.getsource(kind.forward)
    assert not uses_num_items_in_batch(kind)
