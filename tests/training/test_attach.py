"""An attached regularizer: its term and gradient equal a handwritten sum, and detaching removes it."""

from __future__ import annotations

import warnings
from copy import deepcopy

import numpy as np
import pytest

from tests.training.models import bert, collate, gradients, hooks, items, llama, torch

import isoscope  # isort: skip
from isoscope import InputError, attach
from isoscope.losses import CosReg, IStar, PersistentEntropy, Regularizer, UnbiasedIsoScore
from tests.training.tiny import batches

BATCH = collate(items(16))


def quiet(make, **more):
    """A model without dropout, in training mode."""
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} if make is bert else {}
    return make(**still, **more).train()


def ready(loss):
    if isinstance(loss, IStar):
        loss.refresh(torch.eye(32))
    return loss


def by_hand(model, loss, pick):
    """Return the loss and gradients with the regularizer added by hand, for the rows that `pick` selects."""
    model.zero_grad()
    output = model(**BATCH, output_hidden_states=True)
    mask = BATCH["attention_mask"] > 0
    total = output.loss + loss(*pick(output.hidden_states, mask))
    total.backward()
    return total.detach(), gradients(model)


def attached(model, loss, **settings):
    model.zero_grad()
    with attach(model, loss, **settings) as attachment:
        output = model(**BATCH)
        (output.loss + attachment.term).backward()  # the term is in the loss already: there is none left
    return output.loss.detach(), gradients(model)


LABELS = BATCH["labels"]
CASES = {
    "entropy of the first token": (PersistentEntropy(0.3), {"pool": "cls"}, lambda h, m: (h[-1][:, 0], LABELS)),
    "every layer's tokens": (
        IStar(2),
        {},
        lambda h, m: (torch.cat([states[m] for states in h]), None),
    ),
    "mean of a layer": (
        CosReg(0.5),
        {"layer": 1, "pool": "mean"},
        lambda h, m: (torch.stack([s[k].mean(0) for s, k in zip(h[1], m, strict=True)]), None),
    ),
    "last token": (
        UnbiasedIsoScore(),
        {"layer": -2, "pool": "last"},
        lambda h, m: (h[-2][torch.arange(16), m.sum(1) - 1], None),
    ),
    "tokens by their text's class": (
        PersistentEntropy(),
        {"pool": "tokens"},
        lambda h, m: (h[-1][m], LABELS[:, None].expand(m.shape)[m]),
    ),
    "a function": (CosReg(), {"pool": lambda s, m: s[:, 1] * 2}, lambda h, m: (h[-1][:, 1] * 2, None)),
}


# what must hold


@pytest.mark.parametrize("make", [bert, llama])
@pytest.mark.parametrize(("loss", "settings", "pick"), CASES.values(), ids=CASES.keys())
def test_loss_and_gradients_equal_manual_sum(make, loss, settings, pick):
    model = quiet(make)
    expected, slopes = by_hand(model, ready(loss), pick)
    found, got = attached(model, loss, **settings)
    torch.testing.assert_close(found, expected)
    assert got.keys() == slopes.keys()
    for name in slopes:
        torch.testing.assert_close(got[name], slopes[name], msg=name)


@pytest.mark.parametrize(
    ("make", "pool", "place"), [(bert, "cls", lambda m: 0), (llama, "last", lambda m: m.sum(1) - 1)]
)
def test_default_pool_follows_the_architecture(make, pool, place):
    model, loss = quiet(make), CosReg(0.5)
    expected, slopes = by_hand(model, loss, lambda h, m: (h[-1][torch.arange(16), place(m)], None))
    assert attach(model, loss).pool == pool
    model = quiet(make)
    found, got = attached(model, loss)
    torch.testing.assert_close(found, expected)
    for name in slopes:
        torch.testing.assert_close(got[name], slopes[name], msg=name)


def same_start(batch):
    """The batch with one first token for all texts, as [CLS] or <bos> is."""
    ids = batch["input_ids"].clone()
    ids[:, 0] = 1
    return batch | {"input_ids": ids}


@pytest.mark.parametrize("loss", [CosReg(), UnbiasedIsoScore(), IStar(zeta=0), PersistentEntropy()], ids=repr)
def test_equal_states_warn_once(loss):
    model, batch = quiet(llama), same_start(BATCH)
    with attach(model, loss, layer=-1, pool="cls"):
        with pytest.warns(
            isoscope.DataWarning, match=r"no effect on layer 3 at step 1, because its 16 states are all equal.*'cls'"
        ):
            model(**batch).loss.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(**batch).loss.backward()
    with warnings.catch_warnings(), attach(model, loss):
        warnings.simplefilter("error")
        model(**batch).loss.backward()


class Detached(Regularizer):
    """A term whose value depends on the states, but which has no gradient."""

    def penalty(self, states, labels):
        return states.detach().square().mean() + 0 * states.sum()


def test_zero_gradient_warns_once_unless_it_is_intended():
    model = quiet(bert)
    with attach(model, Detached()):
        with pytest.warns(
            isoscope.DataWarning, match="Detached has no effect on layer 3 at step 1, because the gradient of the term"
        ):
            model(**BATCH).loss.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(**BATCH).loss.backward()
    noise = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Identity())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with attach(model, CosReg(0)):  # the control arm of an experiment
            model(**BATCH).loss.backward()
        with attach(noise, UnbiasedIsoScore(), layer="1") as attachment:  # no further increase is wanted
            noise[1].register_forward_hook(lambda *_: torch.eye(64, requires_grad=True))
            noise(torch.randn(64, 3))
            (attachment.term + 0).backward()


def test_term_without_the_states_warns():
    class Constant(Regularizer):
        def penalty(self, states, labels):
            return torch.tensor(1.0)

    model = quiet(bert)
    with attach(model, Constant()), pytest.warns(isoscope.DataWarning, match="the term does not depend on the states"):
        model(**BATCH)


def test_rows_with_a_gradient_are_counted():
    model, states = quiet(bert), []
    with attach(model, PersistentEntropy(), pool=lambda s, m: states.append(s[:, 0]) or states[-1]) as attachment:
        for _ in range(2):
            model(**BATCH).loss.backward()
    rows = states[0].detach().requires_grad_()
    PersistentEntropy()(rows, LABELS).backward()
    used = int((rows.grad != 0).any(dim=1).sum())
    assert 0 < used < 16, "only the ends of the selected bars"
    assert (attachment.rows, attachment.rows_with_gradient) == (32, 2 * used)


@pytest.mark.parametrize(
    ("loss", "batch", "words"),
    [
        (
            PersistentEntropy(),
            BATCH | {"labels": torch.arange(16)},
            r"PersistentEntropy skips 100% .* fewer than 3 rows",
        ),
        (UnbiasedIsoScore(), collate(items(3)), "UnbiasedIsoScore skips 100% .* too small: use larger batches"),
        (PersistentEntropy(), BATCH | {"labels": torch.tensor([0] * 7 + list(range(1, 10)))}, "skips 56%"),
    ],
)
def test_skipped_rows_warn_after_ten_steps_or_at_the_end(loss, batch, words):
    model = quiet(bert, num_labels=16)
    attachment = attach(model, deepcopy(loss))
    model(**batch)
    with pytest.warns(isoscope.DataWarning, match=words):
        attachment.detach()
    attachment = attach(model, deepcopy(loss))
    for _ in range(9):
        model(**batch)
    with pytest.warns(isoscope.DataWarning, match=words):
        model(**batch)
    attachment.detach()


def test_few_skipped_rows_do_not_warn():
    model = quiet(bert, num_labels=16)
    with attach(model, PersistentEntropy()) as attachment:
        model(**BATCH | {"labels": torch.tensor([0] * 8 + list(range(1, 9)))}).loss.backward()
    assert (attachment.loss.rows_seen, attachment.loss.rows_skipped) == (16, 8)


def test_several_layers_are_averaged():
    model, loss = quiet(bert), CosReg()
    plain = model(**BATCH).loss
    apart = [attached(model, loss, layer=layer)[0] - plain for layer in (1, 2)]
    both = attached(model, loss, layer=[1, 2])[0] - plain
    torch.testing.assert_close(both, sum(apart) / 2)


def test_nothing_is_added_in_evaluation_or_without_gradients():
    model = quiet(bert)
    plain = model(**BATCH).loss.item()
    with attach(model, CosReg(5)) as attachment:
        with torch.no_grad():
            assert model(**BATCH).loss.item() == plain
        assert model.eval()(**BATCH).loss.item() == plain
        assert attachment.step == 0
        assert model.train()(**BATCH).loss.item() != plain
        assert attachment.step == 1


def test_training_in_evaluation_mode_warns_once():
    model = quiet(bert).eval()
    with attach(model, CosReg()) as attachment:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(**BATCH)  # an evaluation with gradients
        with pytest.warns(
            isoscope.DataWarning,
            match=r"BertForSequenceClassification is trained in evaluation mode.* CosReg is not added: call train\(\)",
        ):
            model(**BATCH).loss.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(**BATCH).loss.backward()
            model.train()(**BATCH).loss.backward()
        assert attachment.step == 1


@pytest.mark.parametrize(
    ("second", "settings"),
    [
        (CosReg(), {}),
        (CosReg(0.2), {}),
        (CosReg(), {"layer": [2, 3]}),
        (CosReg(), {"layer": "bert.encoder.layer.2"}),
    ],
    ids=["same", "other weight", "one layer of two", "by name"],
)
def test_attaching_twice_raises(second, settings):
    model = quiet(bert)
    plain = model(**BATCH).loss.item()
    first = attach(model, CosReg())
    count = hooks(model)
    with pytest.raises(InputError, match=r"CosReg is already attached to .*count twice: call detach\(\)"):
        attach(model, second, **settings)
    assert hooks(model) == count
    first.detach()
    attach(model, second, **settings).detach()
    assert model(**BATCH).loss.item() == plain


def test_other_states_models_and_options_can_be_attached_too():
    model, other = quiet(bert), quiet(bert)
    kept = [
        attach(model, PersistentEntropy()),
        attach(model, PersistentEntropy(per_class=False)),
        attach(model, PersistentEntropy(), layer=1),
        attach(model, PersistentEntropy(), pool="mean"),
        attach(other, PersistentEntropy()),
    ]
    model(**BATCH)
    assert [each.step for each in kept] == [1, 1, 1, 1, 0]


def test_detaching_restores_the_model():
    model = quiet(bert)
    keys, names, before = list(model.state_dict()), set(vars(model)), model(**BATCH).loss.item()
    attachment = attach(model, IStar(), layer="all")
    assert list(model.state_dict()) == keys, "nothing of the regularizer is saved with the model"
    attachment.detach()
    attachment.detach()
    assert hooks(model) == 0
    assert set(vars(model)) == names
    assert model(**BATCH).loss.item() == before


def test_two_regularizers_add_up_and_detach_separately():
    model = quiet(bert)
    plain = model(**BATCH).loss
    first, second = attach(model, CosReg()), attach(model, PersistentEntropy())
    both = model(**BATCH).loss
    torch.testing.assert_close(both - plain, torch.tensor(first.value + second.value))
    first.detach()
    torch.testing.assert_close(model(**BATCH).loss - plain, torch.tensor(second.value))
    second.detach()


def test_custom_loop_can_add_the_term_to_its_loss():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    x, y = torch.randn(20, 8), torch.arange(20) % 2
    expected = 0.1 * PersistentEntropy()(model[:2](x), y)
    with attach(model, PersistentEntropy(0.1), layer="1", labels=lambda x: y) as attachment:
        term = [(model(x), attachment.term)[1] for _ in range(3)]
        torch.testing.assert_close(term[0], expected)
        assert attachment.term is attachment.term, "to look at it does not use it up"
        assert attachment.value == pytest.approx(term[2].item())


def test_loss_is_found_in_every_output_type():
    class Model(torch.nn.Module):
        def __init__(self, wrap):
            super().__init__()
            self.inner, self.wrap = torch.nn.Linear(3, 3), wrap

        def forward(self, x):
            hidden = self.inner(x)
            return self.wrap(hidden.square().mean(), hidden)

    torch.manual_seed(0)
    x = torch.randn(9, 3)
    for wrap, read in [
        (lambda loss, hidden: loss, lambda out: out),
        (lambda loss, hidden: (loss, hidden), lambda out: out[0]),
        (lambda loss, hidden: {"loss": loss, "logits": hidden}, lambda out: out["loss"]),
    ]:
        model = Model(wrap)
        plain, term = read(model(x)), CosReg()(model.inner(x))
        with attach(model, CosReg(), layer="inner") as attachment:
            torch.testing.assert_close(read(model(x)) - plain, term)
            assert float(attachment.term) == 0


# what trainers do to models


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("layer", [-1, 1, "all"])
def test_gradient_checkpointing_changes_nothing(layer, reentrant):
    model, loss = quiet(bert), CosReg()
    expected, slopes = attached(model, loss, layer=layer, pool="tokens")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.enable_input_require_grads()
    found, got = attached(model, loss, layer=layer, pool="tokens")
    torch.testing.assert_close(found, expected)
    for name in slopes:
        torch.testing.assert_close(got[name], slopes[name], msg=name)


def test_compiled_model_gives_same_result():
    model, loss = quiet(bert), ready(IStar())
    expected, slopes = attached(model, loss)
    with attach(model, loss) as attachment:
        compiled = torch.compile(model, backend="aot_eager")
        for _ in range(2):
            model.zero_grad()
            output = compiled(**BATCH)
            output.loss.backward()
        assert attachment.step == 2
    torch.testing.assert_close(output.loss.detach(), expected)
    for name, slope in gradients(model).items():
        torch.testing.assert_close(slope, slopes[name], msg=name, atol=1e-5, rtol=1e-4)


def test_names_in_compiled_models_are_those_of_the_original():
    names = ["bert.encoder.layer.1", "bert.encoder.layer.2"]
    model = quiet(bert)
    plain = attached(model, CosReg(), layer=names[0])[0]
    for wrapped in (torch.compile(model, backend="eager"), quiet(bert)):
        if wrapped.__class__.__name__ != "OptimizedModule":  # only a part of the model is compiled
            wrapped.bert.encoder = torch.compile(wrapped.bert.encoder, backend="eager")
        with attach(wrapped, CosReg(), layer=names) as attachment:
            assert attachment.layers == names
        with attach(wrapped, CosReg(), layer=names[0]) as attachment:
            torch.testing.assert_close(wrapped(**BATCH).loss.detach(), plain)
        with pytest.raises(InputError, match=r"no layer 'bert.encoder.layer.9'.* similar names are bert.encoder.layer"):
            attach(wrapped, CosReg(), layer="bert.encoder.layer.9")


def test_autocast_term_equals_term_of_the_states():
    model = quiet(bert)
    with attach(model, ready(IStar())) as attachment:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(**BATCH)
        output.loss.backward()
        coarse = attachment.value
        model(**BATCH)
        assert coarse == pytest.approx(attachment.value, abs=0.01)
    assert all(slope.isfinite().all() for slope in gradients(model).values())


def test_adapters_are_trained():
    peft = pytest.importorskip("peft", reason="peft is not installed")

    def adapted():
        torch.manual_seed(1)
        config = peft.LoraConfig(
            task_type="SEQ_CLS", r=4, lora_dropout=0.0, target_modules=["query", "value"], init_lora_weights=False
        )
        return peft.get_peft_model(quiet(bert), config).train()

    model = adapted()
    model(**BATCH).loss.backward()
    plain = gradients(model)
    with_term = attached(adapted(), PersistentEntropy())[1]
    lora = [name for name in plain if "lora" in name]
    assert with_term.keys() == plain.keys(), "what is frozen stays so"
    assert sum(not torch.equal(plain[name], with_term[name]) for name in lora) == len(lora)

    inner = quiet(bert)
    with attach(inner, CosReg()) as attachment:  # and from inside
        peft.get_peft_model(inner, peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query"])).train()(**BATCH)
        assert attachment.step == 1


def test_running_layers_outside_the_attached_module_warns():
    model = quiet(bert)
    with attach(model, CosReg()):
        with pytest.warns(
            isoscope.DataWarning,
            match="ran without a call to the model itself.*attach to the module that training calls",
        ):
            model.forward(**BATCH)  # hooks do not see this
        model.forward(**BATCH)


def test_interrupted_forward_pass_does_not_leak_states():
    model, broken = quiet(bert), torch.nn.Identity()
    with attach(model, CosReg()) as attachment:
        head, model.classifier = model.classifier, broken
        broken.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(**BATCH)
        model.classifier = head
        model.eval()
        for _ in range(3):
            model(**BATCH)
        assert not attachment._capture.seen
        plain = model(**BATCH).loss.item()
        assert model.train()(**BATCH).loss.item() == pytest.approx(plain + attachment.value)


def test_data_parallel_replicas_raise():
    model = quiet(bert)
    with attach(model, CosReg()), pytest.raises(InputError, match=r"DataParallel runs copies.*torchrun"):
        model._replicate_for_data_parallel()(**BATCH)


class Answers(torch.nn.Module):
    """A model that accepts labels of any form."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 4)

    def forward(self, x, labels):
        return {"loss": self.net(x).square().mean()}


@pytest.mark.parametrize("labels", [["a"] * 6, [{"boxes": 1}] * 6, object()])
def test_nonnumeric_labels_fail_only_if_labels_are_needed(labels):
    model, x = Answers(), torch.randn(6, 4)
    with attach(model, CosReg(), layer="net") as attachment:
        model(x, labels=labels)
        assert attachment.step == 1
    with (
        attach(model, PersistentEntropy(), layer="net"),
        pytest.raises(InputError, match="need a numeric tensor with one class per text"),
    ):
        model(x, labels=labels)


def test_copy_of_attached_model_is_plain():
    model = quiet(bert)
    plain = model(**BATCH).loss.item()
    with attach(model, CosReg()) as attachment:
        assert deepcopy(model)(**BATCH).loss.item() == plain
        assert attachment.step == 0
        assert model(**BATCH).loss.item() != plain


def test_attached_model_is_saved_without_the_regularizer(tmp_path):
    model = quiet(bert)
    plain = model(**BATCH).loss.item()
    with attach(model, CosReg()):
        torch.save(model, tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt", weights_only=False)(**BATCH).loss.item() == plain


# the covariance


def test_refreshed_covariance_uses_evaluation_states_without_padding():
    model, loss, found = bert().train(), IStar(), items(40)
    loader = torch.utils.data.DataLoader(found, batch_size=8, collate_fn=collate, shuffle=True)
    with attach(model, loss) as attachment:
        count = attachment.refresh(loader)
    assert model.training
    batch = collate(found)
    states = model.eval()(**batch, output_hidden_states=True).hidden_states
    rows = torch.cat([s[batch["attention_mask"] > 0] for s in states]).detach()
    assert count == len(rows)
    torch.testing.assert_close(loss.shrinkage, torch.cov(rows.T))


def test_training_subset_is_sampled_before_sorting():
    from isoscope.training.refresh import equal_length_batches

    found = items(2000)
    loader = torch.utils.data.DataLoader(found, batch_size=8, collate_fn=collate)
    batches = list(equal_length_batches(loader, lambda length: length, 3000, seed=0))
    assert all(bool((batch["attention_mask"] == 1).all()) for batch in batches), "texts of one length: no padding"
    drawn = [n for batch in batches for n in batch["attention_mask"].sum(1).tolist()]
    assert sum(drawn) >= 3000 > sum(drawn) - max(drawn)
    every = [len(item["input_ids"]) for item in found]
    assert sum(drawn) / len(drawn) == pytest.approx(sum(every) / len(every), abs=0.5), "not the long ones alone"


def test_refresh_reads_only_what_it_needs_and_depends_on_seed():
    model, loss, found = bert().train(), IStar(), items(2000)
    loader = torch.utils.data.DataLoader(found, batch_size=8, collate_fn=collate)
    with attach(model, loss) as attachment:
        count = attachment.refresh(loader, states=5000, seed=1)
        first = loss.shrinkage
        assert 5000 <= count < 5000 + 4 * 11, "no more than the last text's"
        attachment.refresh(loader, states=5000, seed=1)
        assert torch.equal(loss.shrinkage, first)
        attachment.refresh(loader, states=5000, seed=2)
        assert not torch.equal(loss.shrinkage, first)
        batches = [collate(found[i : i + 8]) for i in range(0, 80, 8)]
        assert attachment.refresh(iter(batches)) == 4 * sum(int(batch["attention_mask"].sum()) for batch in batches)
    with (
        attach(model, CosReg()) as attachment,
        pytest.raises(InputError, match="CosReg uses no covariance"),
    ):
        attachment.refresh(loader)


# what goes wrong


def test_nan_raises_with_layer_and_step():
    model = quiet(bert)
    with attach(model, CosReg(), layer=["bert.encoder.layer.1", -1]):
        model(**BATCH)
        with torch.no_grad():
            model.bert.encoder.layer[1].output.dense.bias[3] = float("nan")
        with pytest.raises(InputError, match=r"states of bert.encoder.layer.1 contain NaN .* 16 of 16 rows at step 2"):
            model(**BATCH)


def test_term_that_reaches_no_loss_warns_once():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    with attach(model, CosReg(), layer="0"):
        model(torch.randn(6, 4))
        with pytest.warns(isoscope.DataWarning, match="term of step 1 was not added to any loss.*add attachment.term"):
            model(torch.randn(6, 4))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model(torch.randn(6, 4))


class Wide(torch.nn.Sequential):
    """Layers of different widths."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 4))

    def forward(self, x):
        return self.net(x)


class Tagger(torch.nn.Module):
    """A model with a label per token, and a module that never runs."""

    def __init__(self):
        super().__init__()
        self.embedding, self.unused = torch.nn.Embedding(90, 8), torch.nn.Linear(8, 8)

    def forward(self, input_ids, attention_mask, labels):
        return {"loss": self.embedding(input_ids).square().mean()}


def frozen():
    model = quiet(bert).requires_grad_(False)
    model.classifier.requires_grad_(True)
    return model


REFUSED = {
    "no labels": (
        lambda: quiet(bert),
        PersistentEntropy(),
        {},
        {key: value for key, value in BATCH.items() if key != "labels"},
        "PersistentEntropy needs labels.*per_class=False",
    ),
    "no such labels": (
        lambda: quiet(bert),
        PersistentEntropy(),
        {"labels": "classes"},
        BATCH,
        "labels is 'classes'.*no argument",
    ),
    "frozen": (frozen, CosReg(), {}, BATCH, "layer 3 have no gradient: .* frozen"),
    "no rows": (lambda: quiet(bert), CosReg(), {"pool": lambda s, m: s[0, 0]}, BATCH, r"pool returned shape \(32,\)"),
    "regression": (
        lambda: quiet(bert, num_labels=1),
        PersistentEntropy(),
        {},
        BATCH | {"labels": torch.rand(16)},
        "labels have dtype torch.float32: need integer class labels",
    ),
    "labels of tokens": (
        Tagger,
        PersistentEntropy(),
        {"layer": "embedding"},
        BATCH | {"labels": BATCH["input_ids"]},
        r"need one class per text.*per_class=False",
    ),
    "no covariance": (lambda: quiet(bert), IStar(), {}, BATCH, "no shrinkage covariance yet"),
    "did not run": (Tagger, CosReg(), {"layer": "unused"}, BATCH, "unused did not run in Tagger at step 1"),
    "widths": (Wide, IStar(zeta=0), {"pool": "cls"}, {"x": torch.randn(5, 4)}, r"the layers have \[3, 4\] dimensions"),
}


@pytest.mark.parametrize(("make", "loss", "settings", "batch", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_impossible_requests_raise_one_line_errors(make, loss, settings, batch, message):
    model = make()
    with attach(model, loss, **settings), pytest.raises(InputError, match=message) as error:
        model(**batch)
    assert "\n" not in str(error.value)


def test_only_modules_and_regularizers_are_accepted():
    with pytest.raises(InputError, match=r"model is a str: need a torch.nn.Module"):
        attach("bert-base-uncased", CosReg())
    with pytest.raises(InputError, match="loss is a float: need a regularizer"):
        attach(quiet(bert), 0.5)


def test_custom_token_classes_are_used():
    torch.manual_seed(0)
    model, labels = Tagger(), BATCH["input_ids"] % 3
    with attach(model, PersistentEntropy(), layer="embedding", pool="tokens") as attachment:
        model(**BATCH | {"labels": labels})
    mask = BATCH["attention_mask"] > 0
    expected = PersistentEntropy()(model.embedding(BATCH["input_ids"])[mask], labels[mask])
    assert attachment.value == pytest.approx(expected.item())


def test_custom_regularizer_is_accepted():
    class Shorter(Regularizer):
        def penalty(self, states, labels):
            return states.square().mean()

    model = quiet(bert)
    with attach(model, Shorter(0.1)) as attachment:
        model(**BATCH).loss.backward()
    assert attachment.value > 0
    assert "Shorter(weight=0.1) on BertForSequenceClassification, layer=-1, pool='cls'" in repr(attachment)


def test_tokens_of_a_text_form_one_group_of_unbiased_isoscore():
    seen = []

    class Listening(UnbiasedIsoScore):
        def penalty(self, states, labels, groups=None):
            seen.append((states.detach().numpy(), None if groups is None else groups.tolist()))
            return super().penalty(states, labels, groups)

    batch = batches(6)[0]
    for pool in ("tokens", "mean"):
        model = bert().train()
        with isoscope.attach(model, Listening(), layer=-1, pool=pool):
            model(**batch)
    (tokens, groups), (_, of_texts) = seen
    mask = batch["attention_mask"].numpy() > 0
    assert groups == np.nonzero(mask)[0].tolist()
    assert len(tokens) == len(groups)
    assert of_texts is None
