"""The gradient of a term relative to that of the task."""

import math

import pytest

from isoscope import attach
from isoscope._core.errors import ParameterError
from isoscope.losses import CosReg
from isoscope.training.gradient_ratio import gradient_ratio
from tests.training import tiny
from tests.training.models import bert, collate, gradients, items, torch, transformers


def still(**more):
    """A model without dropout, so that two runs can be compared."""
    return bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more).train()


def norm(found, names) -> float:
    return math.sqrt(sum(float(found[name].double().square().sum()) for name in names))


def separate_norms(weight: float) -> tuple[float, float]:
    """The norms of the gradients of a term and of the loss, each from its own backward pass.

    They cover the parameters below the states that the term is computed from, not the pooler and the head.
    """
    batch, found = collate(items(16)), []
    for part in ("term", "loss"):
        model = still()
        with attach(model.bert, CosReg(weight)) as attachment:
            loss = model(**batch).loss
            (attachment.term if part == "term" else loss).backward()
        found.append(gradients(model))
    return norm(found[0], found[0]), norm(found[1], found[0])


@pytest.mark.parametrize("weight", [0.1, 10.0, -1.0])
def test_ratio_is_that_of_two_backward_passes(weight):
    of_term, of_loss = separate_norms(weight)
    model, batch = still(), collate(items(16))
    with attach(model.bert, CosReg(weight)) as attachment:
        loss = model(**batch).loss
        assert attachment.compare_gradients(loss) == pytest.approx(of_term / of_loss, rel=1e-5)
        assert not gradients(model), "the gradients of the parameters are not touched"
        (loss + attachment.term).backward()
    assert attachment.gradient_ratio == pytest.approx(of_term / of_loss, rel=1e-5)
    assert (attachment.rows, attachment.rows_with_gradient) == (16, 16), "the comparison counts no rows"


def test_no_term_to_compare_raises():
    model = still()
    with attach(model, CosReg()) as attachment:
        with pytest.raises(ParameterError, match=r"no term to compare .* after a forward pass"):
            attachment.compare_gradients(torch.ones((), requires_grad=True))
        loss = model(**collate(items(8))).loss
        with pytest.raises(ParameterError, match=r"follow\(trainer, gradients=True\)"):
            attachment.compare_gradients(loss)


def test_loss_without_gradient_gives_nan():
    model = torch.nn.Linear(2, 1)
    value = model(torch.ones(1, 2)).sum()
    assert math.isnan(gradient_ratio(value, 0 * value, model))
    assert math.isnan(gradient_ratio(value, torch.ones(()), model))
    assert math.isnan(gradient_ratio(torch.ones(()), value, model)), "the term depends on no parameter"


def test_freed_graph_raises_one_clear_line():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    value = model(torch.ones(1, 2)).sum()
    value.backward()
    with pytest.raises(ParameterError, match=r"cannot be compared .* pass gradients=False") as caught:
        gradient_ratio(value, value, model)
    assert "\n" not in str(caught.value)


def train(folder, *, gradients, seed=0):
    model = tiny.bert()
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=8, max_steps=6, logging_steps=2, learning_rate=1e-3, use_cpu=True,
        report_to="none", save_strategy="no", disable_tqdm=True, seed=seed,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=tiny.texts(48))
    with attach(model, CosReg(0.5)) as attachment:
        attachment.follow(trainer, gradients=gradients)
        trainer.train()
    return model, trainer.state.log_history


def test_trainer_logs_the_ratio_and_trains_as_without(tmp_path):
    plain, without = train(tmp_path / "plain", gradients=False)
    compared, log = train(tmp_path / "compared", gradients=True)
    assert tiny.weights(plain) == tiny.weights(compared)
    name = "regularizer/CosReg/gradient_ratio"
    found = [(each["step"], each[name]) for each in log if name in each]
    assert [step for step, _ in found] == [2, 4, 6]
    assert all(0 < ratio < math.inf for _, ratio in found)
    assert not any(name in each for each in without)
    assert all(each["regularizer/CosReg/gradient_share"] == 1 for each in log if "loss" in each)
