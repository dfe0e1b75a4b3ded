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
    "errors": ["DataWarning", "InputError", "MissingExtra"],
    "memory": ["memory_limit"],
    "sketching": ["Sketch", "sketch"],
    "metrics.spectrum": [
        "Estimate",
        "anisotropy",
        "effective_rank",
        "isoscore",
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
    "metrics.uniformity": ["alignment", "uniformity"],
    "stores.store": ["Batch", "Store"],
    "stores.opening": ["open_store"],
    "stores.writing": ["write_store"],
    "transforms.affine": ["AllButTheTop", "Center", "Standardize", "Whiten"],
    "transforms.chain": ["Chain"],
    "transforms.clustered": ["ClusterCenter", "ClusterNull"],
    "transforms.saving": ["load_transform"],
    "transforms.applying": ["repair_store"],
    "finetuning.tasks": ["Split", "Task"],
    "finetuning.outcomes": ["FineTuning"],
    "finetuning.finetuning": ["finetune"],
    "report.finding": ["Finding"],
    "report.audit": ["Audit", "audit"],
    "report.grouped": ["GroupedAudit"],
    "report.advice": ["Advice", "advise"],
    "embedding.embedding": ["embed"],
    "losses.regularizer": ["Regularizer"],
    "losses.istar": ["IStar"],
    "losses.unbiased_isoscore": ["UnbiasedIsoScore"],
    "losses.cosreg": ["CosReg"],
    "losses.persistent_entropy": ["PersistentEntropy"],
    "training.attaching": ["Attachment", "attach"],
    "watching.history": ["History"],
    "training.tracking": ["IsotropyTracker"],
    "training.repairing": ["BatchRepair", "Repairing"],
    "studies.running": ["StudyRun", "run_study"],
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from isoscope.embedding.embedding import embed
    from isoscope.errors import DataWarning, InputError, MissingExtra
    from isoscope.finetuning.finetuning import finetune
    from isoscope.finetuning.outcomes import FineTuning
    from isoscope.finetuning.tasks import Split, Task
    from isoscope.losses.cosreg import CosReg
    from isoscope.losses.istar import IStar
    from isoscope.losses.persistent_entropy import PersistentEntropy
    from isoscope.losses.regularizer import Regularizer
    from isoscope.losses.unbiased_isoscore import UnbiasedIsoScore
    from isoscope.memory import memory_limit
    from isoscope.metrics.clusters import ClusterChoice, choose_clusters, silhouette
    from isoscope.metrics.cosine import cosine_contribution, inter_similarity, intra_similarity, mean_cosine
    from isoscope.metrics.neighbors import Hubness, hubness, lid, two_nn
    from isoscope.metrics.objectives import (
        classifier_objective,
        isotropy_objective,
        silhouette_objective,
        triplet_objective,
    )
    from isoscope.metrics.partition import partition_isotropy
    from isoscope.metrics.spectrum import (
        Estimate,
        anisotropy,
        effective_rank,
        isoscore,
        isoscore_star,
        participation_ratio,
        spectrum,
    )
    from isoscope.metrics.topology import h0_barcode, persistent_entropy, select_bars
    from isoscope.metrics.uniformity import alignment, uniformity
    from isoscope.report.advice import Advice, advise
    from isoscope.report.audit import Audit, audit
    from isoscope.report.finding import Finding
    from isoscope.report.grouped import GroupedAudit
    from isoscope.sketching import Sketch, sketch
    from isoscope.stores.opening import open_store
    from isoscope.stores.store import Batch, Store
    from isoscope.stores.writing import write_store
    from isoscope.studies.running import StudyRun, run_study
    from isoscope.training.attaching import Attachment, attach
    from isoscope.training.repairing import BatchRepair, Repairing
    from isoscope.training.tracking import IsotropyTracker
    from isoscope.transforms.affine import AllButTheTop, Center, Standardize, Whiten
    from isoscope.transforms.applying import repair_store
    from isoscope.transforms.chain import Chain
    from isoscope.transforms.clustered import ClusterCenter, ClusterNull
    from isoscope.transforms.saving import load_transform
    from isoscope.watching.history import History


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import isoscope` costs little."""
    if name not in _HOME:
        raise AttributeError(f"module 'isoscope' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"isoscope.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from isoscope.errors import MissingExtra

        raise MissingExtra(f'{name} needs torch, which is not installed: pip install "isoscope[train]"') from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
