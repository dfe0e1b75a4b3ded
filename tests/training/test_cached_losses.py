"""Losses that cache gradients or shorten embeddings: the gradient with a term is that of the plain sum."""

from __future__ import annotations

from copy import deepcopy

import pytest

from tests.training.models import gradients, torch
from tests.training.test_trainers import sentence_transformer

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")

from sentence_transformers.sentence_transformer.losses import (
    CachedGISTEmbedLoss,
    CachedMultipleNegativesRankingLoss,
    GISTEmbedLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)

from isoscope import InputError, attach
from isoscope.losses import CosReg, IStar, PersistentEntropy, UnbiasedIsoScore

ANCHORS = ["a b c", "d e", "f g h i", "j a", "b d f h", "c"]
POSITIVES = ["c a", "e e d", "i h", "a j", "h f", "c c c"]
CLASSES = torch.tensor([0, 1, 0, 1, 0, 1])


@pytest.fixture
def model(tmp_path):
    return sentence_transformer(tmp_path)[1].train()


def features(model):
    return [model.preprocess(ANCHORS), model.preprocess(POSITIVES)]


def trained(model, loss, labels=None):
    """The value of a loss, and its gradients."""
    model.zero_grad()
    value = loss(features(model), labels)
    value.backward()
    return value.detach(), gradients(model)


def assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0])
    assert found[1].keys() == expected[1].keys()
    for name, slope in expected[1].items():
        torch.testing.assert_close(found[1][name], slope, msg=name)


LOSSES = {
    "ranking": (MultipleNegativesRankingLoss, CachedMultipleNegativesRankingLoss),
    "guided": (
        lambda model: GISTEmbedLoss(model, guide=deepcopy(model)),
        lambda model, **more: CachedGISTEmbedLoss(model, guide=deepcopy(model), **more),
    ),
}


@pytest.mark.parametrize(("plain", "cached"), LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("make", [CosReg, UnbiasedIsoScore, PersistentEntropy])
def test_cached_loss_has_the_gradients_of_the_plain_loss(make, plain, cached, model):
    whole, parts = plain(model), cached(model, mini_batch_size=4)
    without = trained(model, parts)
    with attach(whole, make(0.7), layer="model"):
        expected = trained(model, whole, CLASSES)
    with attach(parts, make(0.7), layer="model") as attachment:
        assert_same(trained(model, parts, CLASSES), expected)
        assert attachment.step == 1
        assert attachment.value == pytest.approx(float(expected[0] - without[0]), abs=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(parts(features(model), CLASSES), without[0])
    assert_same(trained(model, parts), without)
    assert "calculate_loss" not in vars(parts)


def full_embeddings(model):
    columns = [model(each)["sentence_embedding"] for each in features(model)]
    return torch.nn.functional.normalize(torch.cat(columns), dim=1)


@pytest.mark.parametrize("layer", ["model", -1])
def test_matryoshka_loss_is_regularized_at_full_width(layer, model):
    def nested():
        return MatryoshkaLoss(model, MultipleNegativesRankingLoss(model), [32, 16, 8])

    plain, term = nested(), CosReg(0.7)
    model.zero_grad()
    columns = [dict(each) for each in features(model)]
    value = plain(columns, None)
    if layer == "model":
        value = value + term(full_embeddings(model))
    else:
        states = [model[0](each)["token_embeddings"][:, 0] for each in features(model)]
        value = value + term(torch.cat(states))
    value.backward()
    expected = value.detach(), gradients(model)
    loss = nested()
    with attach(loss, CosReg(0.7), layer=layer):
        assert_same(trained(model, loss), expected)


def test_matryoshka_loss_around_a_cached_loss(model):
    def nested(size):
        return MatryoshkaLoss(model, CachedMultipleNegativesRankingLoss(model, mini_batch_size=size), [32, 8])

    without = trained(model, nested(4))
    loss = nested(2)
    with attach(loss, CosReg(0.7), layer="model") as attachment:
        value, slopes = trained(model, loss)
        torch.testing.assert_close(value - without[0], torch.tensor(attachment.value))
    model.zero_grad()
    rows = torch.cat([model(each)["sentence_embedding"] for each in features(model)])
    CosReg(0.7)(rows).backward()
    for name, slope in gradients(model).items():
        torch.testing.assert_close(slopes[name], without[1][name] + slope, msg=name, atol=1e-5, rtol=1e-4)
    assert_same(trained(model, loss), without)


@pytest.mark.parametrize("layer", [None, -1, "model.0", ["model", "model.1"]])
def test_other_layers_of_a_cached_loss_raise(layer, model):
    loss = CachedMultipleNegativesRankingLoss(model)
    with pytest.raises(
        InputError, match=r'CachedMultipleNegativesRankingLoss computes gradients.* only.*set layer="model"'
    ) as error:
        attach(loss, IStar(), layer=layer)
    assert "\n" not in str(error.value)
    attach(loss, IStar(), layer="model").detach()
