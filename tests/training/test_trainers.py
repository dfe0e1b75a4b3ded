"""Real trainers with a regularizer give the same weights as a handwritten loop."""

from __future__ import annotations

import math

import pytest

from tests.training.models import bert, collate, hooks, items, llama, torch, transformers

import isoscope  # isort: skip
from isoscope import InputError, attach
from isoscope.losses import CosReg, IStar, PersistentEntropy

STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Remembering(IStar):
    """An I-STAR that records its covariances and the number of their rows."""

    def __init__(self, *args):
        super().__init__(*args)
        self.states = []

    def refresh(self, covariance):
        self.states.append(covariance.n)
        super().refresh(covariance)


def trainer(model, tmp_path, found, gather=collate, **more):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    settings = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 8,
        "learning_rate": 0.05,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "seed": 3,
    }
    arguments = transformers.TrainingArguments(str(tmp_path), **settings | more)
    sampled = torch.utils.data.SequentialSampler

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args, **kwargs):
            return sampled(self.train_dataset)

    return InOrder(model, arguments, train_dataset=found, data_collator=gather)


def by_hand(model, found, loss, accumulated=1, divisor=1, pick=lambda states, mask: states[:, 0], gather=collate):
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    model.train()
    for _ in range(2):
        for start in range(0, len(found), 8 * accumulated):
            for first in range(start, start + 8 * accumulated, 8):
                batch = gather(found[first : first + 8])
                out = model(**batch, output_hidden_states=True)
                rows = pick(out.hidden_states[-1], batch["attention_mask"])
                term = loss(rows, batch["labels"] if batch["labels"].ndim == 1 else None) if loss else 0
                ((out.loss + term) / divisor).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model


def last(states, mask):
    return states[torch.arange(len(states)), mask.sum(1) - 1]


def distance(one, other):
    """Return the largest difference between the weights of two models."""
    return max((a - b).abs().max().item() for a, b in zip(one.parameters(), other.parameters(), strict=True))


def language_model():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(llama().config)


def predicting(found):
    """A batch of a language model, whose labels are the tokens themselves."""
    batch = collate(found)
    return batch | {"labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


KINDS = {
    "encoder": (lambda: bert(**STILL), "cls", lambda states, mask: states[:, 0], collate),
    "decoder": (llama, "last", last, collate),
    "language model": (language_model, "tokens", lambda states, mask: states[mask > 0], predicting),
}


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize(("make", "pool", "pick", "gather"), KINDS.values(), ids=KINDS.keys())
def test_hugging_face_trainer_matches_manual_loop(make, pool, pick, gather, accumulated, tmp_path):
    if gather is predicting and int(transformers.__version__.partition(".")[0]) < 5:
        pytest.skip("the trainer of transformers 4 averages the loss of a language model over one more token per text")
    found, loss = [{**item, "input_ids": item["input_ids"][:3]} for item in items(32)], CosReg(0.3)
    settings = {"gradient_accumulation_steps": accumulated}

    def trained(regularized):
        model = make()
        run = trainer(model, tmp_path, found, gather, **settings)
        if not regularized:
            run.train()
            return model
        with attach(model, loss, pool=pool) as attachment:
            attachment.follow(run)
            run.train()
        assert hooks(model) == 0
        return model

    # Classifiers of transformers do not divide their loss by the batches that are accumulated: nor does the term.
    def plain(divisor):
        return by_hand(make(), found, None, accumulated, divisor, pick, gather)

    bare, steered = trained(False), trained(True)
    divisor = min((1, accumulated), key=lambda divisor: distance(bare, plain(divisor)))
    assert distance(bare, plain(divisor)) < 1e-5
    assert distance(steered, by_hand(make(), found, loss, accumulated, divisor, pick, gather)) < 1e-5
    assert distance(steered, plain(divisor)) > 1e-4


def test_covariance_is_refreshed_each_epoch_and_term_is_logged(tmp_path):
    model, loss, found = bert(), Remembering(), items(40)
    seen = []

    class Log(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(dict(logs))

    run = trainer(model, tmp_path, found, num_train_epochs=3)
    run.add_callback(Log())
    count = len(run.callback_handler.callbacks)
    with attach(model, loss) as attachment:
        attachment.follow(run)
        run.train()
        logged = [logs["regularizer/Remembering"] for logs in seen if "loss" in logs]
        assert logged[-1] == pytest.approx(attachment.value)
        assert all(math.isfinite(value) for value in logged)
    tokens = sum(len(item["input_ids"]) for item in found)
    assert loss.states == [4 * tokens] * 3, "embeddings and three layers, without padding"
    assert len(run.callback_handler.callbacks) == count


@pytest.mark.parametrize("settings", [{"bf16": True}, {"gradient_checkpointing": True}], ids=["bf16", "checkpoints"])
def test_trains_in_half_precision_and_with_checkpointing(settings, tmp_path):
    model = bert()
    with attach(model, IStar()) as attachment:
        attachment.follow(run := trainer(model, tmp_path, items(32), **settings))
        run.train()
        assert attachment.step == 8
        assert math.isfinite(attachment.value)
    assert all(p.isfinite().all() for p in model.parameters())


def test_evaluation_is_not_regularized(tmp_path):
    model, found = bert(**STILL), items(16)
    run = trainer(model, tmp_path, found)
    plain = run.evaluate(found)["eval_loss"]
    with attach(model, CosReg(100)):
        assert run.evaluate(found)["eval_loss"] == pytest.approx(plain)


# Sentence Transformers


def sentence_transformer(tmp_path):
    st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *"abcdefghij"])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path / "bert"
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(
        folder
    )
    bert(**STILL).bert.save_pretrained(folder)
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    return st, st.SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32, "mean")], device="cpu")


@pytest.mark.parametrize(
    ("loss", "settings"),
    [(CosReg(1.0), {"layer": "model"}), (CosReg(1.0), {"pool": "mean"}), (Remembering(), {})],
    ids=["sentence embedding", "mean of the last layer", "every layer's tokens"],
)
def test_sentence_transformers_trainer_regularizes_through_the_loss(loss, settings, tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    st, model = sentence_transformer(tmp_path)
    texts = ["a b c", "d e", "f g h i", "j a", "b d f h", "c", "e g i", "a c e g", "h", "b j", "i f c", "d a"]
    data = datasets.Dataset.from_dict({"anchor": texts, "positive": texts[::-1]})
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    ranking = MultipleNegativesRankingLoss(model)
    arguments = st.SentenceTransformerTrainingArguments(
        str(tmp_path), num_train_epochs=2, per_device_train_batch_size=6, report_to=[], use_cpu=True, disable_tqdm=True
    )
    with attach(ranking, loss, **settings) as attachment:
        run = st.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=ranking)
        attachment.follow(run)
        run.train()
        assert attachment.step == 4
        features = [model.preprocess(texts[:6]), model.preprocess(texts[6:])]
        model.train()
        with_term = ranking(features, None)
    torch.testing.assert_close(with_term - ranking(features, None), torch.tensor(attachment.value), atol=1e-5, rtol=0)
    if isinstance(loss, CosReg):
        sentences = torch.cat([model(dict(f))["sentence_embedding"] for f in features])
        assert attachment.value == pytest.approx(float(isoscope.mean_cosine(sentences.detach())), abs=1e-5)
    else:
        assert len(loss.states) == 2
    assert hooks(ranking) == 0


# Lightning


def lightning_module(**more):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = bert(**STILL, **more)

        def training_step(self, batch, batch_idx):
            loss = self.model(**batch).loss
            self.log("task", loss, on_step=True, prog_bar=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.05)

    return lightning, Module()


def lightning_trainer(lightning, tmp_path, **more):
    return lightning.Trainer(
        max_epochs=2,
        logger=more.pop("logger", False),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        accelerator="cpu",
        log_every_n_steps=1,
        **more,
    )


@pytest.mark.parametrize("accumulated", [1, 2])
def test_lightning_matches_manual_loop(accumulated, tmp_path):
    lightning, module = lightning_module()
    found, loss = items(32), PersistentEntropy(0.3)
    run = lightning_trainer(lightning, tmp_path, accumulate_grad_batches=accumulated)
    loader = torch.utils.data.DataLoader(found, batch_size=8, collate_fn=collate)
    names = set(vars(module))
    with attach(module, loss) as attachment:
        attachment.follow(run)
        run.fit(module, loader)
    assert distance(module.model, by_hand(bert(**STILL), found, loss, accumulated, accumulated)) < 1e-5
    assert hooks(module) == 0
    assert "training_step" not in set(vars(module)) - names


def test_lightning_refreshes_the_covariance_and_logs_the_term(tmp_path):
    lightning, module = lightning_module()
    logger = pytest.importorskip("lightning.pytorch.loggers").CSVLogger(tmp_path)
    run = lightning_trainer(lightning, tmp_path, logger=logger)
    loss, found = Remembering(), items(24)
    with attach(module, loss) as attachment:
        attachment.follow(run)
        run.fit(module, torch.utils.data.DataLoader(found, batch_size=8, collate_fn=collate))
        assert attachment.step == 6
    assert loss.states == [4 * sum(len(item["input_ids"]) for item in found)] * 2
    assert "regularizer/Remembering" in next(tmp_path.rglob("metrics.csv")).read_text().splitlines()[0]
    assert not any(type(callback).__name__ == "RegularizerCallback" for callback in run.callbacks)


def test_unsupported_trainers_raise_with_supported_ones():
    model = bert()
    with (
        attach(model, IStar()) as attachment,
        pytest.raises(InputError, match=r"trainer is a dict: need a Hugging Face.*attachment.refresh\(loader\)"),
    ):
        attachment.follow({})


def test_loss_outside_the_model_raises(tmp_path):
    model = bert()
    settings = transformers.TrainingArguments(
        tmp_path, label_smoothing_factor=0.1, report_to="none", use_cpu=True, save_strategy="no"
    )
    trainer = transformers.Trainer(model, settings, train_dataset=items(8), data_collator=collate)
    with attach(model, CosReg()) as attachment, pytest.raises(InputError, match="label_smoothing_factor the trainer"):
        attachment.follow(trainer)
    before = [each.clone() for each in model.parameters()]
    with attach(model, CosReg()), pytest.raises(InputError, match="set label_smoothing_factor to 0"):
        trainer.train()  # without follow
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
