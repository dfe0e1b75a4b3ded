"""A repair inside a model: what it removes, what it keeps, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from tests.finetuning.toy import encoder, one_thread, opinions, tokenizer
from tests.training.models import llama

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from isoscope.training.repair_layer import BatchRepair, Repairing  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return encoder(tmp_path_factory.mktemp("models") / "tiny")


def classifier(folder):
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(folder).eval()


def batch(count=12):
    words = tokenizer(classifying=True)
    return dict(words(opinions(count)[0], padding=True, return_tensors="pt"))


def rows(n=40, d=8, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, d)) * np.arange(1, d + 1) + 3)


def test_one_cluster_without_components_subtracts_the_mean():
    X = rows()
    torch.testing.assert_close(BatchRepair(1, 0)(X), X - X.mean(dim=0))


def test_equals_the_cluster_null_transform():
    X = rows()
    expected = isoscope.ClusterNull(3, 2, random_state=0).fit_transform(X.numpy())
    np.testing.assert_allclose(BatchRepair(3, 2)(X).numpy(), expected, rtol=1e-10, atol=1e-10)


def test_gradient_is_orthogonal_to_removed_directions():
    X = rows().requires_grad_()
    (BatchRepair(1, 1)(X) * rows(seed=1)).sum().backward()
    centered = (X - X.mean(dim=0)).detach()
    first = torch.linalg.svd(centered, full_matrices=False).Vh[0]
    assert float(X.grad.abs().max()) > 0.1
    assert float((X.grad @ first).abs().max()) < 1e-9


def test_few_rows_do_not_raise():
    assert torch.equal(BatchRepair()(rows(1)), rows(1))
    assert BatchRepair(5, 0)(rows(2)).abs().max() == 0  # each alone in its cluster
    assert BatchRepair()(rows(12).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(("wrong", "words"), [((0, 1), "n_clusters is 0"), ((2, -1), "n_components is -1")])
def test_invalid_parameters_raise(wrong, words):
    with pytest.raises(isoscope.InputError, match=words):
        BatchRepair(*wrong)


@pytest.mark.parametrize("pool", ["cls", "last"])
def test_only_the_token_read_by_the_head_is_changed(folder, pool):
    model, given = classifier(folder), batch()
    with one_thread(), torch.no_grad():
        before = model.base_model(**given).last_hidden_state
        with Repairing(model.base_model, BatchRepair(2, 1), pool):
            after = model.base_model(**given).last_hidden_state
        again = model.base_model(**given).last_hidden_state
    at = torch.zeros(len(before), dtype=torch.long) if pool == "cls" else given["attention_mask"].sum(dim=1) - 1
    texts = torch.arange(len(before))
    torch.testing.assert_close(after[texts, at], BatchRepair(2, 1)(before[texts, at]), rtol=1e-5, atol=1e-5)
    left = torch.ones(before.shape[:2], dtype=torch.bool)
    left[texts, at] = False
    assert torch.equal(after[left], before[left])
    assert torch.equal(again, before)


def test_default_token_follows_the_architecture(folder):
    assert Repairing(classifier(folder), BatchRepair()).pool == "cls"
    assert Repairing(llama(), BatchRepair()).pool == "last"


def test_the_head_reads_the_repaired_vectors(folder):
    model, given = classifier(folder), batch()
    with one_thread(), torch.no_grad(), Repairing(model, lambda found: found * 0):
        logits = model(**given).logits
    torch.testing.assert_close(logits, logits[:1].expand_as(logits))


def test_unsupported_models_raise(folder):
    model = classifier(folder)
    with pytest.raises(isoscope.InputError, match="pool is 'mean'"):
        Repairing(model, BatchRepair(), "mean")
    with pytest.raises(isoscope.InputError, match="repair is a int"):
        Repairing(model, 3)


def test_finetuning_with_another_repair_raises(folder, tmp_path):
    texts, labels = opinions(48)
    split = isoscope.finetuning.Split(texts, None, np.array(labels))
    task = isoscope.finetuning.Task("mood", split, split, ("sad", "glad"), "accuracy")
    asked = {"epochs": 1, "batch_size": 16, "every": 3, "probe": 16}
    with one_thread():
        usual = isoscope.finetune(folder, task, output=tmp_path / "usual", **asked)
        with_repair = isoscope.finetune(folder, task, output=tmp_path / "repaired", repair=BatchRepair(2, 1), **asked)
    assert with_repair.settings.repair == "BatchRepair(2, 1, seed=0)"
    assert usual.final["loss"].mean != with_repair.final["loss"].mean
    with pytest.raises(isoscope.InputError, match="repair was"):
        isoscope.finetune(folder, task, output=tmp_path / "repaired", **asked)
