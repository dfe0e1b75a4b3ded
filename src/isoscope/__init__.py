"""isoscope: the shape of an embedding space, measured exactly, at any size, on any array.

>>> import numpy as np, isoscope
>>> cloud = np.random.default_rng(0).standard_normal((1000, 64)) + 2
>>> round(float(isoscope.isoscore(cloud, unbiased=True)), 2), round(float(isoscope.mean_cosine(cloud)), 2)
(1.0, 0.8)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

_ROOMS = {
    "_core.errors": ["DataWarning", "InputError", "MissingExtra"],
    "_core.memory": ["memory_limit"],
    "sketching.sketch": ["Sketch"],
    "metrics.spectra": [
        "Estimate",
        "anisotropy",
        "effective_rank",
        "isoscore",
        "isoscore_interval",
        "isoscore_star",
        "participation_ratio",
        "spectrum",
    ],
    "metrics.cosine": ["cosine_contribution", "inter_similarity", "intra_similarity", "mean_cosine"],
    "metrics.partition": ["partition_isotropy"],
    "metrics.neighbors": ["Hubness", "hubness", "lid", "two_nn"],
    "metrics.clusters": ["ClusterChoice", "choose_clusters", "silhouette"],
    "metrics.objectives": ["classifier_objective", "isotropy_objective", "silhouette_objective", "triplet_objective"],
    "metrics.topology": ["h0_barcode", "persistent_entropy", "select_bars"],
    "metrics.hypersphere": ["alignment", "uniformity"],
    "stores.store": ["Batch", "Store"],
    "stores.open": ["open_store"],
    "stores.write": ["write_store"],
    "engines.engine": ["sketch"],
    "transforms.affine": ["AllButTheTop", "Center", "Standardize", "Whiten"],
    "transforms.chain": ["Chain"],
    "transforms.clustered": ["ClusterCenter", "ClusterNull"],
    "transforms.persistence": ["load_transform"],
    "transforms.apply": ["repair_store"],
    "finetuning.task_data": ["Split", "Task"],
    "finetuning.result": ["FineTuning"],
    "finetuning.finetune": ["finetune"],
    "auditing.finding": ["Finding"],
    "auditing.audit": ["audit"],
    "auditing.audit_result": ["Audit"],
    "auditing.grouped": ["GroupedAudit"],
    "advising.advise": ["Advice", "advise"],
    "embedding.embed": ["embed"],
    "losses.regularizer": ["Regularizer"],
    "losses.istar": ["IStar"],
    "losses.unbiased_isoscore": ["UnbiasedIsoScore"],
    "losses.cosreg": ["CosReg"],
    "losses.persistent_entropy": ["PersistentEntropy"],
    "training.attach": ["Attachment", "attach"],
    "training.history": ["History"],
    "training.tracker": ["IsotropyTracker"],
    "training.repair_layer": ["BatchRepair", "Repairing"],
    "studies.run": ["StudyRun", "run_study"],
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from isoscope._core.errors import DataWarning, InputError, MissingExtra
    from isoscope._core.memory import memory_limit
    from isoscope.advising.advise import Advice, advise
    from isoscope.auditing.audit import audit
    from isoscope.auditing.audit_result import Audit
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.grouped import GroupedAudit
    from isoscope.embedding.embed import embed
    from isoscope.engines.engine import sketch
    from isoscope.finetuning.finetune import finetune
    from isoscope.finetuning.result import FineTuning
    from isoscope.finetuning.task_data import Split, Task
    from isoscope.losses.cosreg import CosReg
    from isoscope.losses.istar import IStar
    from isoscope.losses.persistent_entropy import PersistentEntropy
    from isoscope.losses.regularizer import Regularizer
    from isoscope.losses.unbiased_isoscore import UnbiasedIsoScore
    from isoscope.metrics.clusters import ClusterChoice, choose_clusters, silhouette
    from isoscope.metrics.cosine import cosine_contribution, inter_similarity, intra_similarity, mean_cosine
    from isoscope.metrics.hypersphere import alignment, uniformity
    from isoscope.metrics.neighbors import Hubness, hubness, lid, two_nn
    from isoscope.metrics.objectives import (
        classifier_objective,
        isotropy_objective,
        silhouette_objective,
        triplet_objective,
    )
    from isoscope.metrics.partition import partition_isotropy
    from isoscope.metrics.spectra import (
        Estimate,
        anisotropy,
        effective_rank,
        isoscore,
        isoscore_interval,
        isoscore_star,
        participation_ratio,
        spectrum,
    )
    from isoscope.metrics.topology import h0_barcode, persistent_entropy, select_bars
    from isoscope.sketching.sketch import Sketch
    from isoscope.stores.open import open_store
    from isoscope.stores.store import Batch, Store
    from isoscope.stores.write import write_store
    from isoscope.studies.run import StudyRun, run_study
    from isoscope.training.attach import Attachment, attach
    from isoscope.training.history import History
    from isoscope.training.repair_layer import BatchRepair, Repairing
    from isoscope.training.tracker import IsotropyTracker
    from isoscope.transforms.affine import AllButTheTop, Center, Standardize, Whiten
    from isoscope.transforms.apply import repair_store
    from isoscope.transforms.chain import Chain
    from isoscope.transforms.clustered import ClusterCenter, ClusterNull
    from isoscope.transforms.persistence import load_transform


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import isoscope` costs little."""
    if name not in _HOME:
        raise AttributeError(f"module 'isoscope' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"isoscope.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from isoscope._core.errors import MissingExtra

        raise MissingExtra(f'{name} needs torch, which is not installed: pip install "isoscope[train]"') from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
