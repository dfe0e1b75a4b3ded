"""What is tried: leaving the vectors alone, each repair over a small grid, and the obvious chains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from isoscope._core.errors import InputError
from isoscope.transforms.affine import AllButTheTop, Center, Standardize, Whiten
from isoscope.transforms.chain import Chain
from isoscope.transforms.clustered import ClusterCenter, ClusterNull
from isoscope.transforms.repair import Repair


@dataclass(frozen=True)
class Candidate:
    """A repair that is not fitted yet."""

    name: str
    repair: Any
    numbers: int
    """How many numbers it learns from the corpus: the fewer, the simpler."""


AS_IS = "as it is"


def build_candidates(d: int, n: int, seed: int, given: Iterable[Any] | None = None) -> list[Candidate]:
    """The candidates for n vectors of d dimensions, the simplest first; the first is to do nothing."""
    if given is not None and not isinstance(given, list | tuple | Iterator):
        raise InputError(
            f"candidates is a {type(given).__name__}: need a list of repairs, such as [Center(), Whiten()]"
        )
    repairs = default_repairs(d, n, seed) if given is None else [_check_repair(repair) for repair in given]
    found: dict[str, Any] = {}
    for repair in repairs:
        name = describe_repair(repair)
        if name in found and given is not None and repr(found[name]) != repr(repair):
            raise InputError(f"two candidates are {name}, and differ in what that does not say: give one of them")
        found[name] = repair
    every = [
        Candidate(name, repair, count_learned_numbers(repair, d)) for name, repair in found.items() if name != AS_IS
    ]
    return [Candidate(AS_IS, Chain(), 0), *sorted(every, key=lambda candidate: candidate.numbers)]


def default_repairs(d: int, n: int, seed: int) -> list[Any]:
    """Every repair with a few settings, those left out that n vectors of d dimensions cannot teach."""
    few, many = max(2, round(d / 100)), max(3, round(d / 30))
    found: list[Any] = [Center(), Standardize()]
    tops = [k for k in (1, few, many) if k <= min(d // 2, n // 4)]
    found += [AllButTheTop(k) for k in tops]
    found += [Chain([Standardize(), AllButTheTop(k)]) for k in tops[1:]]
    if n > 16 and d > 1:
        found += [Whiten(shrinkage=0.5), Whiten()]
        found += [Whiten("pca", d // part) for part in (2, 4) if d // part >= 2]
    for k in (3, 10):
        if n >= 30 * k:
            found.append(ClusterCenter(k, random_state=seed))
    for clusters, components in ((10, few), (27, 12)):
        if n >= 30 * clusters and components <= d // 4:
            found.append(ClusterNull(clusters, components, random_state=seed))
    return found


def describe_repair(repair: Any) -> str:
    """A repair in short: what it is and what was set, in the order of the class's own parameters.

    >>> chain = Chain([Standardize(), AllButTheTop(6)])
    >>> describe_repair(chain), describe_repair(ClusterNull(random_state=0)), describe_repair(Whiten("pca", 96))
    ('Standardize → AllButTheTop(6)', 'ClusterNull(27, 12)', 'Whiten(pca, 96)')
    """
    if isinstance(repair, Chain):
        return " → ".join(describe_repair(step) for step in repair.steps) or AS_IS
    said: list[Any] = []
    if isinstance(repair, AllButTheTop):
        said = [repair.n_components]
    elif isinstance(repair, Whiten):
        said = [repair.method] if repair.method != "zca" else []
        said += [repair.n_components] if repair.n_components is not None else []
        said += [f"shrinkage={repair.shrinkage}"] if repair.shrinkage != "auto" else []
    elif isinstance(repair, ClusterCenter):
        said = [repair.n_clusters]
        said += [repair.n_components] if isinstance(repair, ClusterNull) else []
        kind = repair.clusterer if isinstance(repair.clusterer, str) else type(repair.clusterer).__name__
        said += [kind] if kind != "kmeans" else []
    name = type(repair).__name__
    return f"{name}({', '.join(str(each) for each in said)})" if said else name


def count_learned_numbers(repair: Any, d: int) -> int:
    """How many numbers a repair learns from vectors of d dimensions: means, scales, directions."""
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


def _check_repair(repair: Any) -> Any:
    if not isinstance(repair, Repair):
        raise InputError(f"a candidate is a {type(repair).__name__}: need isoscope's repairs, such as Whiten()")
    repair._check_parameters()
    return repair
