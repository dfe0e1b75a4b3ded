"""The advisor's candidates: no repair, each repair with a few settings, and chains of repairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from isoscope._core.errors import ParameterError
from isoscope._core.random import sklearn_seed
from isoscope.transforms.affine import AllButTheTop, Center, Standardize, Whiten
from isoscope.transforms.chain import Chain
from isoscope.transforms.clustered import ClusterCenter, ClusterNull
from isoscope.transforms.repair import Repair


@dataclass(frozen=True)
class Candidate:
    """A repair that has not been fitted yet."""

    name: str
    repair: Repair
    numbers: int
    """The number of parameters it learns from the corpus; fewer means simpler."""


AS_IS = "as it is"


def build_candidates(d: int, n: int, seed: int, given: Iterable[Repair] | None = None) -> list[Candidate]:
    """Return the candidates for n vectors of d dimensions, simplest first; the first one changes nothing."""
    if given is not None and not isinstance(given, list | tuple | Iterator):
        raise ParameterError(
            f"candidates is a {type(given).__name__}: need a list of repairs, such as [Center(), Whiten()]"
        )
    repairs = default_repairs(d, n, seed) if given is None else [_check_repair(repair) for repair in given]
    by_name: dict[str, Repair] = {}
    for repair in repairs:
        name = describe_repair(repair)
        if name in by_name and given is not None and repr(by_name[name]) != repr(repair):
            raise ParameterError(
                f"two candidates are both named {name} but have different parameters: pass only one of them"
            )
        by_name[name] = repair
    every = [
        Candidate(name, repair, count_learned_numbers(repair, d)) for name, repair in by_name.items() if name != AS_IS
    ]
    return [Candidate(AS_IS, Chain(), 0), *sorted(every, key=lambda candidate: candidate.numbers)]


def default_repairs(d: int, n: int, seed: int) -> list[Repair]:
    """Return every repair with a few settings, except those that cannot be fitted to n vectors of d dimensions."""
    few, many = max(2, round(d / 100)), max(3, round(d / 30))
    repairs: list[Repair] = [Center(), Standardize()]
    tops = [k for k in (1, few, many) if k <= min(d // 2, n // 4)]
    repairs += [AllButTheTop(k) for k in tops]
    repairs += [Chain([Standardize(), AllButTheTop(k)]) for k in tops[1:]]
    if n > 16 and d > 1:
        repairs += [Whiten(shrinkage=0.5), Whiten()]
        repairs += [Whiten("pca", d // part) for part in (2, 4) if d // part >= 2]
    for k in (3, 10):
        if n >= 30 * k:
            repairs.append(ClusterCenter(k, random_state=sklearn_seed(seed)))
    for clusters, components in ((10, few), (27, 12)):
        if n >= 30 * clusters and components <= d // 4:
            repairs.append(ClusterNull(clusters, components, random_state=sklearn_seed(seed)))
    return repairs


def describe_repair(repair: Repair) -> str:
    """Return a short name for a repair: its class and its settings.

    >>> chain = Chain([Standardize(), AllButTheTop(6)])
    >>> describe_repair(chain), describe_repair(ClusterNull(random_state=0)), describe_repair(Whiten("pca", 96))
    ('Standardize → AllButTheTop(6)', 'ClusterNull(27, 12)', 'Whiten(pca, 96)')
    """
    if isinstance(repair, Chain):
        return " → ".join(describe_repair(step) for step in repair.steps) or AS_IS
    settings: list[Any] = []
    if isinstance(repair, AllButTheTop):
        settings = [repair.n_components]
    elif isinstance(repair, Whiten):
        settings = [repair.method] if repair.method != "zca" else []
        settings += [repair.n_components] if repair.n_components is not None else []
        settings += [f"shrinkage={repair.shrinkage}"] if repair.shrinkage != "auto" else []
    elif isinstance(repair, ClusterCenter):
        settings = [repair.n_clusters]
        settings += [repair.n_components] if isinstance(repair, ClusterNull) else []
        kind = repair.clusterer if isinstance(repair.clusterer, str) else type(repair.clusterer).__name__
        settings += [kind] if kind != "kmeans" else []
    name = type(repair).__name__
    return f"{name}({', '.join(str(each) for each in settings)})" if settings else name


def count_learned_numbers(repair: Repair, d: int) -> int:
    """Return the number of parameters that a repair learns in d dimensions: means, scales, directions."""
    if isinstance(repair, Chain):
        total = 0
        for step in repair.steps:
            total += count_learned_numbers(step, d)
            d = (step.n_components or d) if isinstance(step, Whiten) and step.method == "pca" else d
        return total
    if isinstance(repair, Whiten):
        return d * (1 + (repair.n_components or d))
    if isinstance(repair, AllButTheTop):
        return d * (1 + (max(1, round(d / 100)) if repair.n_components == "auto" else int(repair.n_components)))
    if isinstance(repair, ClusterCenter):
        clusters = 15 if repair.n_clusters == "auto" else int(repair.n_clusters)
        return clusters * d * (1 + (int(repair.n_components) if isinstance(repair, ClusterNull) else 0))
    return d * (2 if isinstance(repair, Standardize) else 1)


def _check_repair(repair: Repair) -> Repair:
    if not isinstance(repair, Repair):
        raise ParameterError(f"a candidate is a {type(repair).__name__}: need isoscope repairs, such as Whiten()")
    repair._check_parameters()
    return repair
