"""isoscope measures the shape of an embedding space: exactly, at any size, on any array library.

The functions and classes for everyday use are available here. The others are in `isoscope.metrics`, `isoscope.losses`,
`isoscope.stores`, `isoscope.transforms`, `isoscope.training`, `isoscope.finetuning`, `isoscope.studies` and
`isoscope.errors`.

>>> import numpy as np, isoscope
>>> X = np.random.default_rng(0).standard_normal((1000, 64)) + 2
>>> round(float(isoscope.isoscore(X, unbiased=True)), 2), round(float(isoscope.mean_cosine(X)), 2)
(1.0, 0.8)
"""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

__version__ = "0.2.0"

if TYPE_CHECKING:
    from isoscope import errors as errors
    from isoscope import finetuning as finetuning
    from isoscope import losses as losses
    from isoscope import metrics as metrics
    from isoscope import stores as stores
    from isoscope import studies as studies
    from isoscope import training as training
    from isoscope import transforms as transforms
    from isoscope._core.errors import DataWarning as DataWarning
    from isoscope._core.errors import InputError as InputError
    from isoscope._core.errors import MissingExtra as MissingExtra
    from isoscope._core.memory import memory_limit as memory_limit
    from isoscope.advising.advise import Advice as Advice
    from isoscope.advising.advise import advise as advise
    from isoscope.auditing.audit import audit as audit
    from isoscope.auditing.audit_result import Audit as Audit
    from isoscope.auditing.comparison import Comparison as Comparison
    from isoscope.auditing.finding import Finding as Finding
    from isoscope.auditing.grouped import GroupedAudit as GroupedAudit
    from isoscope.comparing.canary import canary as canary
    from isoscope.comparing.same import same as same
    from isoscope.comparing.sameness import Sameness as Sameness
    from isoscope.compressing.compress import compress as compress
    from isoscope.compressing.compression import Compression as Compression
    from isoscope.embedding.embed import embed as embed
    from isoscope.engines.engine import sketch as sketch
    from isoscope.finetuning.finetune import finetune as finetune
    from isoscope.finetuning.result import FineTuning as FineTuning
    from isoscope.metrics.clusters import choose_clusters as choose_clusters
    from isoscope.metrics.clusters import silhouette as silhouette
    from isoscope.metrics.cosine import cosine_contribution as cosine_contribution
    from isoscope.metrics.cosine import inter_similarity as inter_similarity
    from isoscope.metrics.cosine import intra_similarity as intra_similarity
    from isoscope.metrics.cosine import mean_cosine as mean_cosine
    from isoscope.metrics.hypersphere import alignment as alignment
    from isoscope.metrics.hypersphere import uniformity as uniformity
    from isoscope.metrics.neighbors import hubness as hubness
    from isoscope.metrics.neighbors import lid as lid
    from isoscope.metrics.neighbors import two_nn as two_nn
    from isoscope.metrics.partition import partition_isotropy as partition_isotropy
    from isoscope.metrics.spectra import anisotropy as anisotropy
    from isoscope.metrics.spectra import effective_rank as effective_rank
    from isoscope.metrics.spectra import isoscore as isoscore
    from isoscope.metrics.spectra import isoscore_interval as isoscore_interval
    from isoscope.metrics.spectra import isoscore_star as isoscore_star
    from isoscope.metrics.spectra import participation_ratio as participation_ratio
    from isoscope.metrics.spectra import spectrum as spectrum
    from isoscope.metrics.topology import h0_barcode as h0_barcode
    from isoscope.metrics.topology import persistent_entropy as persistent_entropy
    from isoscope.sketching.sketch import Sketch as Sketch
    from isoscope.stores.open import open_store as open_store
    from isoscope.stores.store import Store as Store
    from isoscope.stores.write import write_store as write_store
    from isoscope.studies.run import StudyRun as StudyRun
    from isoscope.studies.run import run_study as run_study
    from isoscope.thresholding.threshold import threshold as threshold
    from isoscope.thresholding.threshold_result import Threshold as Threshold
    from isoscope.training.attach import attach as attach
    from isoscope.training.history import History as History
    from isoscope.training.tracker import IsotropyTracker as IsotropyTracker
    from isoscope.transforms.affine import AllButTheTop as AllButTheTop
    from isoscope.transforms.affine import Center as Center
    from isoscope.transforms.affine import Standardize as Standardize
    from isoscope.transforms.affine import Whiten as Whiten
    from isoscope.transforms.apply import repair_store as repair_store
    from isoscope.transforms.chain import Chain as Chain
    from isoscope.transforms.clustered import ClusterCenter as ClusterCenter
    from isoscope.transforms.clustered import ClusterNull as ClusterNull
    from isoscope.transforms.persistence import load_transform as load_transform
    from isoscope.transforms.quantize import Quantizer as Quantizer
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "_core.errors": ["DataWarning", "InputError", "MissingExtra"],
            "_core.memory": ["memory_limit"],
            "sketching.sketch": ["Sketch"],
            "engines.engine": ["sketch"],
            "metrics.spectra": [
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
            "metrics.neighbors": ["hubness", "lid", "two_nn"],
            "metrics.clusters": ["choose_clusters", "silhouette"],
            "metrics.topology": ["h0_barcode", "persistent_entropy"],
            "metrics.hypersphere": ["alignment", "uniformity"],
            "stores.store": ["Store"],
            "stores.open": ["open_store"],
            "stores.write": ["write_store"],
            "transforms.affine": ["AllButTheTop", "Center", "Standardize", "Whiten"],
            "transforms.chain": ["Chain"],
            "transforms.clustered": ["ClusterCenter", "ClusterNull"],
            "transforms.quantize": ["Quantizer"],
            "transforms.persistence": ["load_transform"],
            "transforms.apply": ["repair_store"],
            "auditing.finding": ["Finding"],
            "auditing.audit": ["audit"],
            "auditing.audit_result": ["Audit"],
            "auditing.comparison": ["Comparison"],
            "auditing.grouped": ["GroupedAudit"],
            "advising.advise": ["Advice", "advise"],
            "thresholding.threshold": ["threshold"],
            "thresholding.threshold_result": ["Threshold"],
            "compressing.compress": ["compress"],
            "compressing.compression": ["Compression"],
            "comparing.same": ["same"],
            "comparing.sameness": ["Sameness"],
            "comparing.canary": ["canary"],
            "training.attach": ["attach"],
            "training.history": ["History"],
            "training.tracker": ["IsotropyTracker"],
            "embedding.embed": ["embed"],
            "finetuning.finetune": ["finetune"],
            "finetuning.result": ["FineTuning"],
            "studies.run": ["StudyRun", "run_study"],
        },
        subpackages=["errors", "finetuning", "losses", "metrics", "stores", "studies", "training", "transforms"],
    )
    __all__.insert(0, "__version__")
