"""What the commands fit, apply and fix do."""

from __future__ import annotations

import difflib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.errors import InputError
from isoscope._core.memory import limit_sample_size
from isoscope._io.progress import Progress, ignore_progress
from isoscope.auditing.audit import Audit, audit
from isoscope.auditing.compare import HeldOutComparison
from isoscope.auditing.measure import Settings
from isoscope.cli.audit import InterruptibleProgressBar, _check_output_folders, _report_written, show_comparison
from isoscope.cli.session import Interruption
from isoscope.engines.engine import Engine, LocalEngine, TallyT
from isoscope.stores.columns import ColumnError
from isoscope.stores.databases.address import Address
from isoscope.stores.open import open_store
from isoscope.stores.store import Store
from isoscope.stores.write import check_writable, is_folder
from isoscope.transforms.apply import repair_store
from isoscope.transforms.maps import PlainRepair, load_plain
from isoscope.transforms.persistence import check_save_folder, load_transform

if TYPE_CHECKING:
    from isoscope.transforms.repair import Repair

_CLUSTER_OPTIONS = {"clusters": "n_clusters", "clusterer": "clusterer", "sample": "sample", "seed": "random_state"}
METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "center": ("Center", {}),
    "standardize": ("Standardize", {}),
    "all-but-the-top": ("AllButTheTop", {"components": "n_components"}),
    "whiten": ("Whiten", {"method": "method", "components": "n_components", "shrinkage": "shrinkage"}),
    "cluster-center": ("ClusterCenter", _CLUSTER_OPTIONS),
    "cluster-null": ("ClusterNull", {**_CLUSTER_OPTIONS, "components": "n_components"}),
}
"""The class behind each method, and the parameter behind each option that belongs to it."""


@dataclass(frozen=True)
class Method:
    """A method and its options as they were typed; None where one was not."""

    name: str
    options: dict[str, Any]

    def repair(self) -> Repair:
        """The repair that is meant, not fitted; an `InputError` for an option that does not belong to it."""
        name = self.name.lower().replace("_", "-")
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, n=1, cutoff=0.4)
            hint = f"is it {near[0]}? " if near else ""
            raise InputError(f"{self.name!r} is not a method: {hint}There are {', '.join(METHODS)}")
        kind, parameters = METHODS[name]
        given = {option: value for option, value in self.options.items() if value is not None}
        for option in given:
            if option not in parameters:
                belong = ", ".join(f"--{each}" for each in parameters)
                has = f"those that do are {belong}" if belong else "it has no options"
                raise InputError(f"--{option} does not belong to {name}: {has}")
        values = {parameters[option]: _parse_option(option, value) for option, value in given.items()}
        if "seed" in parameters:
            values.setdefault("random_state", 0)  # the same command gives the same repair
        found: Repair = getattr(isoscope, kind)(**values)
        found._check_parameters()
        return found


def _parse_option(option: str, typed: Any) -> Any:
    """What an option that may be a number or a word means."""
    if not isinstance(typed, str) or option in ("method", "clusterer"):
        return typed
    if typed.lower() == "auto" or (typed.lower() == "none" and option == "shrinkage"):
        return "auto" if typed.lower() == "auto" else None
    try:
        return float(typed) if option == "shrinkage" else int(typed)
    except ValueError:
        need = "auto, none or a share from 0 to 1" if option == "shrinkage" else "auto or a whole number"
        raise InputError(f"--{option} {typed}: need {need}") from None


def fit(method: Method, source: str, folder: Path, columns: dict[str, str], engine: Engine) -> None:
    """Fit a repair to a source and save it."""
    repair = method.repair()
    check_save_folder(folder)  # before hours of work and not after
    fitted, rows = _fit_repair(repair, open_store(source, **columns), engine)
    fitted.save(folder)
    print(f"{folder}: {fitted}, fitted to {rows:,} vectors of {fitted.n_features_in_} dimensions")


def apply(
    folder: Path,
    source: str,
    target: Path | Address,
    columns: dict[str, str],
    *,
    vectors_only: bool,
    restart: bool,
    engine: Engine,
) -> None:
    """Write the repaired vectors of a source."""
    _check_target(target, engine)
    repair = load_plain(folder) or load_transform(folder)
    if isinstance(target, Path) and Path(os.path.realpath(folder)) in Path(os.path.realpath(target)).parents:
        raise InputError(f"{target} is in {folder}, which holds the repair: write elsewhere")
    store = open_store(source, **columns)
    _check_not_in_source(target, source)
    _write_repaired(repair, store, target, vectors_only=vectors_only, restart=restart, engine=engine)


def fix(
    method: Method,
    source: str,
    target: Path | Address,
    columns: dict[str, str],
    *,
    saved: Path | None,
    html: Path | None,
    vectors_only: bool,
    restart: bool,
    engine: Engine,
) -> None:
    """Fit a repair to a source, write the repaired vectors, and show what has changed."""
    repair = method.repair()
    _check_target(target, engine)
    _check_output_folders(html)
    if saved is not None:
        check_save_folder(saved)
    store = open_store(source, **columns)
    _check_not_in_source(target, source)
    repair, rows = _fit_repair(repair, store, engine)
    if saved is not None:
        repair.save(saved)
        _report_written(saved)
    _write_repaired(repair, store, target, vectors_only=vectors_only, restart=restart, engine=engine)
    name = target.name if isinstance(target, Path) else target.redacted
    try:
        done, held_out = compare_held_out(method.repair(), store, name, written=rows)
    except InputError as error:
        raise InputError(f"{target} is written, but there is nothing to compare: {error}") from error
    show_comparison(done, html, held_out=held_out)


def compare_held_out(repair: Repair, store: Store, name: str, *, written: int) -> tuple[list[Audit], HeldOutComparison]:
    """Audit random rows before and after a repair that was fitted on other rows.

    A repair fits the rows it has seen better than any others, so these would flatter it.

    Parameters
    ----------
    repair : Repair
        A repair that is not fitted.
    store : Store
        Where the rows come from; of more than 40,000 a random sample is taken.
    name : str
        What the repaired vectors are called.
    written : int
        On how many rows the repair that is written was fitted.
    """
    size = len(store)
    most = limit_sample_size(2 * Settings().sample, store.dim, store.dtype.itemsize)
    drawn = np.random.default_rng(0).permutation(size)[:most]
    fitted, measured = np.sort(drawn[: len(drawn) // 2]), np.sort(drawn[len(drawn) // 2 :])
    repair.fit(store.take(fitted))
    rows = open_store(store.take(measured), **_read_columns(store, measured))
    rows.name = store.name
    dim = repair.transform(np.zeros((1, store.dim), np.float32)).shape[1]
    with InterruptibleProgressBar() as bar:
        before = audit(rows, progress=bar)
    with InterruptibleProgressBar() as bar:
        after = audit(rows.mapped(repair.transform, dim, name=name), progress=bar)
    return [before, after], HeldOutComparison(" ".join(str(repair).split()), len(fitted), len(measured), written)


def _read_columns(store: Store, rows: np.ndarray) -> dict[str, Any]:
    """The columns of some rows that an audit reads; a guessed column that cannot be read is left out."""
    found: dict[str, Any] = {}
    for role in ("labels", "types", "text", "frequency"):
        try:
            found[role] = store.column(role, rows)
        except ColumnError:
            if role not in store.guessed:
                raise
    return found


def _fit_repair(repair: Repair, store: Store, engine: Engine) -> tuple[Repair, int]:
    with InterruptibleProgressBar() as bar:
        watched = _ProgressEngine(engine, bar)
        repair.fit(store, engine=watched)
    return repair, watched.rows


def _check_target(target: Path | Address, engine: Engine) -> None:
    """Refuse what cannot be written, before hours of work and not after."""
    if not isinstance(target, Path):
        if not isinstance(engine, LocalEngine):
            raise InputError(
                f"{target} is a database, which is written to from here: leave the engine, or name a folder"
            )
    elif not is_folder(target):
        check_writable(target)
        _check_output_folders(target)
        if not isinstance(engine, LocalEngine):
            raise InputError(f"{target} is one file, which many processes cannot write: name a folder, without ending")
    elif not target.absolute().parent.is_dir():
        raise InputError(f"{target.parent} is not a folder: make it first")


def _write_repaired(
    repair: Repair | PlainRepair,
    store: Store,
    target: Path | Address,
    *,
    vectors_only: bool,
    restart: bool,
    engine: Engine,
) -> None:
    try:
        with InterruptibleProgressBar() as bar:
            rows = repair_store(
                store,
                repair,
                target,
                columns=not vectors_only,
                restart=restart,
                engine=engine,
                progress=bar,
                say=_print_message,
            )
    except KeyboardInterrupt as stop:
        raise Interruption("; ".join(getattr(stop, "__notes__", [])) or f"{target} is as it was") from stop
    print(f"{target}: {rows:,} vectors")


def _print_message(words: str) -> None:
    print(f"isoscope: {words}", file=sys.stderr)


def _check_not_in_source(target: Path | Address, source: str) -> None:
    """Refuse to write into the folder of shards that is read: the next run would take the result for one of them."""
    folder = os.path.expanduser(source)
    if (
        isinstance(target, Path)
        and os.path.isdir(folder)
        and os.path.realpath(target.absolute().parent) == os.path.realpath(folder)
    ):
        raise InputError(f"{target} is in {source}, all of which is read: write elsewhere")


class _ProgressEngine:
    """An engine that tells how far a fit has read, whatever the fit says itself."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self._engine, self._progress = engine, progress
        self.each = engine.each
        self.rows = 0

    def tally(self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "") -> TallyT:
        def told(stage: str, done: int, share: float, note: str = "") -> None:
            self.rows = done
            self._progress("fitting", done, share, note)

        return self._engine.tally(tally, store, told)
