"""The covariance is computed without affecting training, for every kind of loader."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.training.models import bert, collate, items, torch

from isoscope import InputError, IsotropyTracker, attach  # isort: skip
from isoscope.losses import IStar
from isoscope.training.refresh import equal_length_batches

Dataset, IterableDataset = torch.utils.data.Dataset, torch.utils.data.IterableDataset
DataLoader, TensorDataset = torch.utils.data.DataLoader, torch.utils.data.TensorDataset


class Counted(IterableDataset):
    """An iterable dataset with a length."""

    def __iter__(self):
        return iter(items(12))

    def __len__(self):
        return 12


class Augmented(Dataset):
    """Items that use random numbers from every generator."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        random.random(), np.random.rand(), torch.rand(())  # noqa: NPY002
        return items(12)[i]


def drawn():
    return random.random(), np.random.rand(), torch.rand(()).item()  # noqa: NPY002


@pytest.mark.parametrize("dataset", [Counted(), Augmented()], ids=["stream", "augmented"])
def test_all_states_are_used_and_rng_state_is_unchanged(dataset):
    loader = DataLoader(dataset, batch_size=4, collate_fn=collate)
    found = []
    for refreshed in (False, True):
        random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002
        with attach(bert().train(), IStar()) as attachment:
            torch.manual_seed(1)
            count = attachment.refresh(loader) if refreshed else 0
            found.append(drawn())
    assert found[0] == found[1]
    assert count == 4 * sum(len(item["input_ids"]) for item in items(12))


def test_generator_of_the_loader_is_not_used():
    loader = DataLoader(
        TensorDataset(torch.arange(10.0)[:, None]), batch_size=4, shuffle=True, generator=torch.Generator()
    )
    before = loader.generator.get_state()
    seen = torch.cat([rows for (rows,) in equal_length_batches(loader, lambda length: length, 10, seed=0)])
    assert torch.equal(loader.generator.get_state(), before)
    assert sorted(seen[:, 0].tolist()) == list(range(10))


def test_failed_refresh_stops_capturing():
    with attach(bert().train(), IStar()) as attachment:
        wrong = collate(items(4)) | {"input_ids": torch.full((4, 3), 1000)}
        with pytest.raises(IndexError):
            attachment.refresh([wrong])
        assert not attachment._capture.on


def test_layers_of_different_widths_have_no_joint_covariance():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 4))
    with attach(model, IStar()) as attachment, pytest.raises(InputError, match=r"the layers have \[3, 4\] dimensions"):
        attachment.refresh([torch.randn(5, 4)])


# Lightning

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")


class Net(lightning.LightningModule):
    """A small classifier of rows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class WithoutNumber(Net):
    def training_step(self, batch):
        return super().training_step(batch, 0)


class LeavingOut(Net):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 1 else super().training_step(batch, batch_idx)


class ByHand(Net):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class OfTwo(Net):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch["a"], 0) + super().training_step(batch["b"], 0)


class Doubling(Net):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch[0] * 2, batch[1]


def loader(seed=3):
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(x, torch.arange(48) % 2), batch_size=16, shuffle=True, generator=generator)


def fitted(module, data, *followers):
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **settings)
    for each in followers:
        each.follow(trainer)
    trainer.fit(module, data)
    return [p.detach().clone() for p in module.parameters()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Net, WithoutNumber, LeavingOut, Doubling])
def test_zero_weight_regularizer_and_tracker_change_no_bits(kind):
    plain, module = fitted(kind(), loader()), kind()
    attachment = attach(module, IStar(0.0), layer="net.1")
    tracker = IsotropyTracker([next(iter(loader()))], layer="net.1", every=1)
    assert all(map(torch.equal, plain, fitted(module, loader(), attachment, tracker)))
    assert attachment.step == (4 if kind is LeavingOut else 6)


@pytest.mark.filterwarnings("ignore")
def test_covariance_uses_inputs_of_the_training_step():
    found = []
    for kind in (Net, Doubling):
        module = kind()
        with torch.no_grad():
            module.net[0].bias.zero_()
        module.configure_optimizers = lambda module=module: torch.optim.SGD(module.parameters(), lr=0.0)
        attachment = attach(module, IStar(0.0), layer="net.0")
        fitted(module, loader(), attachment)
        found.append(attachment.loss.shrinkage)
    torch.testing.assert_close(found[1], 4 * found[0])


def test_batches_skipped_by_the_training_step_have_no_states():
    class Choosing(Net):
        def training_step(self, batch, batch_idx):
            return None if batch[1][0] else super().training_step(batch, batch_idx)

    x = torch.randn(5, 4)
    with attach(Choosing(), IStar(), layer="net.1") as attachment:
        assert attachment.refresh([(x, torch.ones(5)), (x, torch.zeros(5).long())]) == 5


@pytest.mark.filterwarnings("ignore")
def test_several_loaders_are_combined():
    module = OfTwo()
    attachment = attach(module, IStar(), layer="net.1")
    fitted(module, {"a": loader(1), "b": loader(2)}, attachment)
    assert attachment.step == 6


@pytest.mark.filterwarnings("ignore")
def test_manual_optimization_raises_an_error_with_advice():
    with pytest.raises(InputError, match=r"ByHand uses manual optimization: attach to the inner module"):
        attach(ByHand(), IStar(), layer="net.1")
    with pytest.raises(InputError, match=r"ByHand uses manual optimization, so running its training_step"):
        fitted(ByHand(), loader(), IsotropyTracker([next(iter(loader()))], layer="net.1"))
