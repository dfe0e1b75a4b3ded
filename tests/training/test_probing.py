import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertModel

from isoscope._core.errors import InputError
from isoscope.training.probe import Probe, run_for_states
from tests.training.tiny import batches, bert, texts


class Texts(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def states_of(probe, *arguments):
    return {layer: rows.states for layer, rows in probe.rows(*arguments).items()}


@pytest.mark.parametrize(
    "examples",
    [
        batches(40),
        iter(batches(40)),
        DataLoader(texts(40), batch_size=7),
        Texts(texts(40)),
    ],
    ids=["list", "iterator", "loader", "dataset"],
)
def test_same_examples_give_same_states_in_any_input_form(examples):
    model = bert().eval()
    expected = states_of(Probe(batches(40)), model, "all", "cls")
    probe = Probe(examples)
    for _ in range(2):
        found = states_of(probe, model, "all", "cls")
        assert list(found) == [0, 1, 2]
        for layer, rows in found.items():
            np.testing.assert_allclose(rows, expected[layer], atol=1e-6)
    assert probe.labels(40).tolist() == [int(item["labels"]) for item in texts(40)]


def test_states_equal_hugging_face_hidden_states():
    model = bert().eval()
    found = states_of(Probe(batches(40)), model, "all", "cls")
    with torch.no_grad():
        every = [model(**batch, output_hidden_states=True).hidden_states for batch in batches(40)]
    for layer in range(3):
        expected = torch.cat([states[layer][:, 0] for states in every]).numpy()
        np.testing.assert_allclose(found[layer], expected, atol=1e-6)


def test_probing_does_not_change_training():
    model = bert().train()
    model.bert.encoder.layer[0].eval()
    model(**batches(8)[0]).loss.backward()
    modes = [module.training for module in model.modules()]
    gradients = [each.grad.clone() for each in model.parameters()]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    probe = Probe(DataLoader(texts(40), batch_size=8, shuffle=True))
    states_of(probe, model, "all", "mean")
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert all(map(torch.equal, gradients, (each.grad for each in model.parameters())))


# how models take a batch


class Takes(nn.Module):
    """A model that records its arguments."""

    def __init__(self):
        super().__init__()
        self.given = None


class TakesNames(Takes):
    def forward(self, input_ids, attention_mask=None, labels=None):
        self.given = (input_ids, attention_mask, labels)


class NeedsLabels(Takes):
    def forward(self, input_ids, labels):
        self.given = (input_ids, labels)


class TakesOne(Takes):
    def forward(self, features, **more):
        self.given = (features, more)


class TakesAll(Takes):
    def forward(self, *args, **more):
        self.given = (args, more)


BATCH = {"input_ids": "ids", "attention_mask": "mask", "labels": "classes"}


@pytest.mark.parametrize(
    ("kind", "batch", "given"),
    [
        (TakesNames, BATCH, ("ids", "mask", None)),
        (TakesNames, BATCH | {"idx": 1}, ("ids", "mask", None)),
        (NeedsLabels, BATCH, ("ids", "classes")),
        (TakesOne, BATCH, ({"input_ids": "ids", "attention_mask": "mask"}, {})),
        (TakesAll, BATCH, ((), {"input_ids": "ids", "attention_mask": "mask"})),
        (TakesNames, ("ids", "mask"), ("ids", "mask", None)),
        (TakesAll, "ids", (("ids",), {})),
    ],
)
def test_batch_is_passed_in_the_format_of_the_model(kind, batch, given):
    model = kind()
    run_for_states(model, batch)
    assert model.given == given


def test_a_model_without_labels_in_its_signature_can_be_probed():
    found = states_of(Probe(batches(20)), BertModel(bert().config), [-1], "mean")
    assert {layer: rows.shape for layer, rows in found.items()} == {2: (20, 32)}


# labels


def test_given_labels_take_precedence_over_batch_labels():
    assert Probe(batches(20), labels=["a", "b"] * 10).labels(20).tolist() == ["a", "b"] * 10
    assert Probe([batch["input_ids"] for batch in batches(20)], labels=torch.arange(20) % 3).labels(20)[4] == 1


def test_labels_that_are_not_classes_are_ignored():
    numbers = [batch | {"labels": batch["labels"].float()} for batch in batches(20)]
    tokens = [batch | {"labels": batch["input_ids"]} for batch in batches(20)]
    some = [batches(20)[0], {"input_ids": batches(20)[1]["input_ids"]}]
    assert [Probe(each).labels(20) for each in (numbers, tokens, some)] == [None] * 3


def test_text_labels_are_not_token_labels():
    assert Probe(batches(20)).labels(133) is None
    with pytest.raises(InputError, match="labels has 19 entries but the probe has 20 rows"):
        Probe(batches(20), labels=[0] * 19).labels(20)
    with pytest.raises(InputError, match=r"labels has shape \(2, 2\)"):
        Probe(batches(20), labels=np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ([], "probe is empty"),
        (batches(8)[0], r"probe is a dict: need a list of batches; pass \[batch\]"),
        (torch.ones(3, 4), r"probe is a Tensor: need a list"),
        (7, "probe is a int: need batches"),
        (Texts([{"input_ids": torch.ones(i)} for i in (3, 4)]), r"cannot be collated .* DataLoader with your"),
    ],
)
def test_invalid_probes_raise_errors(probe, message):
    with pytest.raises(InputError, match=message):
        Probe(probe)


def test_non_models_raise():
    with pytest.raises(InputError, match=r"model is a str: need a torch.nn.Module"):
        states_of(Probe(batches(8)), "bert", "all", "cls")
