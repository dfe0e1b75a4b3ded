"""Functions that each compute one measurement of an embedding space from NumPy, torch, JAX or CuPy arrays."""

from typing import TYPE_CHECKING

from isoscope._lazy import lazy_package

if TYPE_CHECKING:
    from isoscope.metrics.clusters import ClusterChoice as ClusterChoice
    from isoscope.metrics.clusters import choose_clusters as choose_clusters
    from isoscope.metrics.clusters import silhouette as silhouette
    from isoscope.metrics.correspondence import cka as cka
    from isoscope.metrics.correspondence import mutual_knn as mutual_knn
    from isoscope.metrics.correspondence import procrustes_distance as procrustes_distance
    from isoscope.metrics.cosine import cosine_contribution as cosine_contribution
    from isoscope.metrics.cosine import inter_similarity as inter_similarity
    from isoscope.metrics.cosine import intra_similarity as intra_similarity
    from isoscope.metrics.cosine import mean_cosine as mean_cosine
    from isoscope.metrics.hypersphere import alignment as alignment
    from isoscope.metrics.hypersphere import uniformity as uniformity
    from isoscope.metrics.neighbors import Hubness as Hubness
    from isoscope.metrics.neighbors import hubness as hubness
    from isoscope.metrics.neighbors import lid as lid
    from isoscope.metrics.neighbors import two_nn as two_nn
    from isoscope.metrics.objectives import classifier_objective as classifier_objective
    from isoscope.metrics.objectives import isotropy_objective as isotropy_objective
    from isoscope.metrics.objectives import silhouette_objective as silhouette_objective
    from isoscope.metrics.objectives import triplet_objective as triplet_objective
    from isoscope.metrics.partition import partition_isotropy as partition_isotropy
    from isoscope.metrics.spectra import Estimate as Estimate
    from isoscope.metrics.spectra import anisotropy as anisotropy
    from isoscope.metrics.spectra import effective_rank as effective_rank
    from isoscope.metrics.spectra import isoscore as isoscore
    from isoscope.metrics.spectra import isoscore_interval as isoscore_interval
    from isoscope.metrics.spectra import isoscore_star as isoscore_star
    from isoscope.metrics.spectra import participation_ratio as participation_ratio
    from isoscope.metrics.spectra import spectrum as spectrum
    from isoscope.metrics.topology import h0_barcode as h0_barcode
    from isoscope.metrics.topology import persistent_entropy as persistent_entropy
    from isoscope.metrics.topology import select_bars as select_bars
else:
    __getattr__, __dir__, __all__ = lazy_package(
        __name__,
        {
            "spectra": [
                "Estimate",
                "anisotropy",
                "effective_rank",
                "isoscore",
                "isoscore_interval",
                "isoscore_star",
                "participation_ratio",
                "spectrum",
            ],
            "cosine": ["cosine_contribution", "inter_similarity", "intra_similarity", "mean_cosine"],
            "partition": ["partition_isotropy"],
            "neighbors": ["Hubness", "hubness", "lid", "two_nn"],
            "clusters": ["ClusterChoice", "choose_clusters", "silhouette"],
            "objectives": ["classifier_objective", "isotropy_objective", "silhouette_objective", "triplet_objective"],
            "topology": ["h0_barcode", "persistent_entropy", "select_bars"],
            "hypersphere": ["alignment", "uniformity"],
            "correspondence": ["cka", "mutual_knn", "procrustes_distance"],
        },
    )
