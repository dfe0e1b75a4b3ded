"""With two processes, loss and gradients equal those of one process with the complete batch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from isoscope import attach  # noqa: E402
from isoscope.losses import CosReg, IStar, PersistentEntropy, UnbiasedIsoScore, regularizer  # noqa: E402

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available() or sys.platform == "win32",
    reason="torch's gloo is not available",
)

LOSSES = {
    "istar": lambda: IStar(2.0),
    "unbiased": UnbiasedIsoScore,
    "cosreg": CosReg,
    "entropy": lambda: PersistentEntropy(0.5),
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = torch.nn.Linear(5, 8), torch.nn.Linear(8, 2)

    def forward(self, x, labels):
        logits = self.head(torch.tanh(self.first(x)))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def batch():
    generator = torch.Generator().manual_seed(7)
    return torch.randn(24, 5, generator=generator), torch.arange(24) % 3 % 2


def step(model, wrapped, x, labels, make):
    """Return the term of one step and its gradients."""
    loss = make()
    with attach(model, loss, layer="first") as attachment:
        if isinstance(loss, IStar):  # each process takes its share of all
            parts = zip(*(part.split(4) for part in batch()), strict=True)
            attachment.refresh([{"x": part, "labels": classes} for part, classes in parts])
        out = wrapped(x, labels)
        out["loss"].backward()
        return attachment.value, [p.grad.clone() for p in model.parameters()]


def worker(rank, folder):
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"  # a port that is free now may be another test's when it is needed
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    x, labels = batch()
    half = slice(0, 12) if rank == 0 else slice(12, None)
    found = {}
    for name, make in LOSSES.items():
        model = Net()
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        found[name] = step(model, wrapped, x[half], labels[half], make)
    for rows in (0, 1, 5, 24):
        own = slice(0, rows) if rank == 0 else slice(rows, None)
        part = x[own].clone().requires_grad_()
        term = PersistentEntropy()(part, labels[own])
        term.backward()
        found[rows] = (term.item(), part.grad / 2)  # trainers average over the two
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    os._exit(0)  # the destructor of a process group can wait for ever for a process that has ended


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Return the results of each of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(worker, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_equal_single_process(name, ranks):
    model = Net()
    value, slopes = step(model, model, *batch(), LOSSES[name])
    for rank in ranks:
        found, got = rank[name]
        assert found == pytest.approx(value, rel=1e-5)
        for one, other in zip(got, slopes, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("rows", [0, 1, 5, 24])
def test_processes_may_have_different_or_zero_rows(rows, ranks):
    x, labels = batch()
    x.requires_grad_()
    term = PersistentEntropy()(x, labels)
    term.backward()
    assert ranks[0][rows][0] == pytest.approx(term.item(), rel=1e-6)
    torch.testing.assert_close(torch.cat([rank[rows][1] for rank in ranks]), x.grad)


def test_texts_of_different_processes_are_different_groups(monkeypatch):
    found = []
    for rank in range(3):
        monkeypatch.setattr(regularizer.dist, "get_world_size", lambda: 3)
        monkeypatch.setattr(regularizer.dist, "get_rank", lambda rank=rank: rank)
        found += regularizer.make_groups_unique(torch.tensor([0, 0, 1, 7])).tolist()
    assert len(set(found)) == 9
    assert found[0] == found[1]
