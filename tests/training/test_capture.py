"""The states that hooks capture are the model's own hidden states, without padding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training.models import WORDS, bert, collate, hooks, items, llama, torch, transformers

import isoscope  # isort: skip
from isoscope import InputError
from isoscope.training.capture import probe_states
from isoscope.training.layers import find_stack

SIZES = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def albert():
    return transformers.AlbertModel(transformers.AlbertConfig(**SIZES, intermediate_size=48, embedding_size=16))


def gpt2():
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=3, n_head=4, **SPECIAL)
    return transformers.GPT2Model(config)


def mixtral():
    config = transformers.MixtralConfig(
        **SIZES, **SPECIAL, intermediate_size=48, num_key_value_heads=4, num_local_experts=5
    )
    return transformers.MixtralModel(config)


def t5():
    config = transformers.T5Config(vocab_size=WORDS, d_model=32, num_layers=2, num_heads=2, d_ff=48, d_kv=16)
    return transformers.T5Model(config)


@pytest.mark.parametrize("make", [bert, llama, albert, gpt2, mixtral])
def test_states_equal_hidden_states_of_the_model(make):
    model, batch = make(), collate(items(6))
    batch.pop("labels")
    found = probe_states(model, [batch], pool="tokens")
    own = model.eval()(**batch, output_hidden_states=True).hidden_states
    assert list(found) == list(range(len(own)))
    for layer, states in enumerate(own):
        expected = states[batch["attention_mask"] > 0].detach().numpy()
        np.testing.assert_array_equal(found[layer], expected)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("pool", ["cls", "mean", "last", "tokens"])
def test_padding_is_ignored(pool, left):
    model, found = llama(), items(8)
    tight = [collate([item]) for item in found]
    padded = [collate(found, extra=4, left=left)]
    for batch in padded:  # where positions are counted from the first token, as the trainers do
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    alone, together = probe_states(model, tight, pool=pool), probe_states(model, padded, pool=pool)
    for layer in alone:
        np.testing.assert_allclose(together[layer], alone[layer], atol=1e-5)


def test_padding_values_do_not_matter_even_nan():
    from isoscope.training.capture import pool_states

    states = torch.randn(3, 5, 4)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    spoilt = states.masked_fill(mask[:, :, None] == 0, float("nan"))
    for pool, count in [("cls", 2), ("mean", 2), ("last", 2), ("tokens", 7)]:
        rows = pool_states(spoilt, mask, pool, "here")
        assert len(rows.states) == count, "a text without tokens has no row"
        torch.testing.assert_close(rows.states, pool_states(states, mask, pool, "here").states)
    torch.testing.assert_close(pool_states(states, mask, "mean", "here").states[1], states[1, :2].mean(0))
    torch.testing.assert_close(pool_states(states, mask, "last", "here").states[1], states[1, 1])
    torch.testing.assert_close(pool_states(states, mask, lambda s, m: s[:, 2], "here").states, states[:, 2])


def test_probe_restores_mode_rng_and_hooks():
    model = bert().train()
    model.bert.encoder.layer[1].eval()
    modes, state = [m.training for m in model.modules()], torch.get_rng_state()
    first = probe_states(model, [collate(items(6))])
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert hooks(model) == 0
    second = probe_states(model, [collate(items(6))])  # without dropout, whatever the mode
    for layer in first:
        np.testing.assert_array_equal(first[layer], second[layer])


def test_torch_encoder_and_its_padding_are_supported():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    x, padding = torch.randn(4, 6, 16), torch.zeros(4, 6, dtype=torch.bool)
    padding[2, 3:] = True
    found = probe_states(model, [{"src": x, "src_key_padding_mask": padding}], pool="tokens")
    assert {layer: rows.shape for layer, rows in found.items()} == dict.fromkeys(range(4), (21, 16))
    expected = model(x, src_key_padding_mask=padding)[~padding].detach().numpy()
    np.testing.assert_allclose(found[3], expected, atol=1e-5)


def test_modules_are_found_by_name_and_rows_stay_rows():
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(7, 5)
    found = probe_states(model, [x], layer=["1", -1])
    np.testing.assert_array_equal(found["1"], model[:2](x).detach().numpy())
    np.testing.assert_array_equal(found[3], model(x).detach().numpy())


def test_longest_outermost_layer_list_is_the_stack():
    stack = find_stack(mixtral())
    assert stack.names == ["layers.0", "layers.1", "layers.2"]
    assert find_stack(albert()).depth == 3
    with pytest.raises(InputError, match=r'2 stacks of 2 layers.*"encoder.block.1" or "decoder.block.1"'):
        find_stack(t5())


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (4, "layer is 4: need 0 .* to 3.* 3 layers"),
        (-5, "layer is -5"),
        ("bert.encoder.layer.9", r"most similar names are bert.encoder.layer.\d"),
        ("encoder.layer.1", "most similar names are .*bert.encoder.layer.1"),
        ("quux", "no layer 'quux' in BertForSequenceClassification"),
        ("", "no layer ''"),
        (1.5, "layer is 1.5: need a number"),
        (True, "layer is True"),
        ([], "layer is empty"),
    ],
)
def test_unknown_layers_raise_with_nearest_names(layer, message):
    with pytest.raises(InputError, match=message):
        probe_states(bert(), [collate(items(2))], layer=layer)


def test_model_without_hidden_states_raises():
    class Scale(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    with pytest.raises(InputError, match="Scale has no list of layers"):
        probe_states(Scale(), [torch.ones(2, 3)])

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Identity()

        def forward(self, x):
            self.inner("a text")
            return x

    with pytest.raises(InputError, match="inner returns a str without hidden states"):
        probe_states(Words(), [torch.ones(2, 3)], layer="inner")
    with pytest.raises(InputError, match=r"pool is 'middle': need one of \"cls\", \"mean\", \"last\", \"tokens\""):
        probe_states(bert(), [collate(items(2))], pool="middle")


@pytest.mark.parametrize("kind", ["T5", "Bart"])
@pytest.mark.parametrize("given", ["labels", "mask", "ids"])
def test_decoder_uses_its_own_mask(kind, given):
    torch.manual_seed(0)
    sizes = {
        "T5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "Bart": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    }[kind]
    config = getattr(transformers, f"{kind}Config")(vocab_size=WORDS, decoder_start_token_id=0, **sizes)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    ids = torch.randint(3, WORDS, (3, 6))
    asked, answered = ((torch.arange(6) < torch.tensor([[n] for n in each])).long() for each in ((6, 2, 4), (3, 5, 6)))
    batch = {"input_ids": ids, "attention_mask": asked}
    batch |= {
        "labels": {"labels": ids.masked_fill(answered == 0, -100)},
        "mask": {"decoder_input_ids": ids, "decoder_attention_mask": answered},
        "ids": {"decoder_input_ids": ids},
    }[given]
    stacks = ("encoder.block", "decoder.block") if kind == "T5" else ("model.encoder.layers", "model.decoder.layers")
    found = probe_states(model, [batch], layer=[f"{stack}.1" for stack in stacks], pool="tokens")
    expected = [int(asked.sum()), 18 if given == "ids" else int(answered.sum())]
    assert [len(rows) for rows in found.values()] == expected


def test_mask_without_padding_warns():
    batch = collate(items(4))
    wide = batch | {"attention_mask": (batch["attention_mask"][:, None, None, :] - 1.0) * 1e9}
    with pytest.warns(isoscope.DataWarning, match=r"mask has shape \(4, 1, 1, \d+\), from which the padding cannot"):
        probe_states(bert(), [wide])
