"""The commands `fit`, `apply` and `fix`."""

from __future__ import annotations

import difflib
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isoscope._core.errors import InputError, NotFoundError, OutputError, ParameterError, plural, was_dropped
from isoscope._io.files import expand_user
from isoscope._io.progress import Progress, ignore_progress
from isoscope.cli.audit import show_comparison
from isoscope.cli.help import METHOD, OUTPUT, REPAIR, command
from isoscope.cli.options import (
    ColumnsOption,
    EngineOption,
    FitSampleOption,
    FitSeedOption,
    HtmlOption,
    IdsOption,
    JsonOption,
    LayerOption,
    MaxMemoryOption,
    Missing,
    MissingOption,
    NoTextOption,
    OutputOption,
    RepairFolderOption,
    RestartOption,
    SchedulerOption,
    SchemaOption,
    SourceArgument,
    VectorsOnlyOption,
    WorkersOption,
    Zeros,
    ZerosOption,
    check_output_folders,
    check_output_name,
    check_overwriting,
    check_parent,
    check_result_files,
    is_existing_file,
    open_engine,
    open_source,
    parse_target,
)
from isoscope.cli.session import (
    KMEANS_ADDRESS_SPACE,
    STDOUT,
    InterruptibleProgressBar,
    Interruption,
    check_address_space,
    print_message,
    report_dropped,
    report_written,
    write_json_output,
)

if TYPE_CHECKING:
    import numpy as np

    from isoscope.auditing.audit import Audit
    from isoscope.auditing.compare import HeldOutComparison
    from isoscope.engines.engine import Engine, TallyT
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Store
    from isoscope.transforms.maps import PlainRepair
    from isoscope.transforms.repair import Repair

commands = typer.Typer()

_CLUSTER_OPTIONS = {"clusters": "n_clusters", "clusterer": "clusterer", "sample": "sample", "seed": "random_state"}
_METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "center": ("Center", {}),
    "standardize": ("Standardize", {}),
    "all-but-the-top": ("AllButTheTop", {"components": "n_components"}),
    "whiten": ("Whiten", {"method": "method", "components": "n_components", "shrinkage": "shrinkage"}),
    "cluster-center": ("ClusterCenter", _CLUSTER_OPTIONS),
    "cluster-null": ("ClusterNull", {**_CLUSTER_OPTIONS, "components": "n_components"}),
}
"""The class of each method, and the class parameter for each option that the method accepts."""

_MethodArgument = Annotated[
    str,
    typer.Argument(
        metavar="METHOD",
        autocompletion=lambda: list(_METHODS),
        help="The repair: center, standardize, all-but-the-top, whiten, cluster-center or cluster-null.",
    ),
]
_ComponentsOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=METHOD,
        metavar="NUMBER",
        help="For all-but-the-top and cluster-null: number of principal components to remove; all-but-the-top also "
        "accepts auto. For whiten: number of components to keep.",
    ),
]
_ClustersOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=METHOD,
        metavar="NUMBER",
        help="For cluster-center and cluster-null: number of clusters, or auto.",
    ),
]
_ClustererOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=METHOD,
        metavar="NAME",
        help="For cluster-center and cluster-null: clustering method, kmeans or gmm.",
    ),
]
_AxesOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        rich_help_panel=METHOD,
        metavar="NAME",
        help="For whiten: zca (keep the original axes) or pca (use the principal components as axes).",
    ),
]
_ShrinkageOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=METHOD,
        metavar="SHARE",
        help="For whiten: shrinkage of the covariance, as auto, none, or a number from 0 to 1.",
    ),
]


@command(
    commands,
    REPAIR,
    "isoscope fit center vectors.npy -o repair",
    "isoscope fit whiten vectors.npy --components 8 --method pca -o repair",
)
def fit(
    method: _MethodArgument,
    source: SourceArgument,
    output: RepairFolderOption,
    columns: ColumnsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    components: _ComponentsOption = None,
    clusters: _ClustersOption = None,
    clusterer: _ClustererOption = None,
    axes: _AxesOption = None,
    shrinkage: _ShrinkageOption = None,
    json: JsonOption = None,
    schema: SchemaOption = False,
    sample: FitSampleOption = None,
    seed: FitSeedOption = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Fit a repair to a corpus and save it.

    Apply the saved repair to the corpus and to the queries with isoscope apply.
    """
    from isoscope.transforms.persistence import check_save_folder

    options: dict[str, Any] = {"components": components, "clusters": clusters, "clusterer": clusterer, "method": axes}
    repair = _build_repair(method, options | {"shrinkage": shrinkage, "sample": sample, "seed": seed})
    check_overwriting([json], [source], folders=[output])
    check_result_files(json)
    with open_engine(engine, scheduler, workers) as running:
        check_save_folder(output)
        store = open_source(source, columns, layer=layer, missing=missing, zeros=zeros)
        fitted, rows = _fit_repair(repair, store, running)
    fitted.save(output)
    if json is not None:
        fitted_to = {"name": store.name, "rows": rows, "dimensions": fitted.n_features_in_}
        _write_summary("isoscope.fit/1", fitted, json, folder=str(output), source=fitted_to)
    if json != STDOUT:
        print(f"{output}: {fitted}, fitted to {plural(rows, 'vector')} of {plural(fitted.n_features_in_, 'dimension')}")


def _write_summary(schema: str, repair: Repair | PlainRepair, json: Path, **facts: Any) -> None:
    """Write what `fit` or `apply` did as JSON."""
    from isoscope import __version__

    content = {"schema": schema, "isoscope": __version__, "repair": " ".join(str(repair).split()), **facts}
    write_json_output(content, json)


@command(
    commands,
    REPAIR,
    "isoscope apply repair vectors.npy -o repaired.npy",
    "isoscope apply repair queries.npy -o repaired-queries.npy",
)
def apply(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a repair saved by fit, fix or advise.")],
    source: SourceArgument,
    output: OutputOption,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    vectors_only: VectorsOnlyOption = False,
    restart: RestartOption = False,
    json: JsonOption = None,
    schema: SchemaOption = False,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Apply a saved repair and write the repaired vectors.

    Parquet files and databases keep the other columns. Files are replaced only when complete; rerun the same command
    to resume an interrupted run. A database receives only the missing rows, and an existing PostgreSQL table gets a new
    column.
    """
    from isoscope.transforms.maps import PlainRepair, load_plain
    from isoscope.transforms.persistence import load_transform

    if not folder.is_dir():
        raise NotFoundError(f"{folder} is not a folder: pass the folder of a repair that fit, fix or advise saved")
    target = parse_target(output)
    check_overwriting([target, json], [source, ids], folders=[folder])
    check_result_files(json)
    with open_engine(engine, scheduler, workers) as running:
        _check_target(target, running)
        repair = load_plain(folder) or load_transform(folder)
        store = open_source(source, columns, ids=ids, layer=layer, missing=missing, zeros=zeros)
        _check_not_in_source(target, source)
        replaced = is_existing_file(target)
        rows = _write_repaired(repair, store, target, vectors_only=vectors_only, restart=restart, engine=running)
    if json is not None:
        facts = {"folder": str(folder), "source": {"name": store.name, "rows": len(store), "dimensions": store.dim}}
        _write_summary("isoscope.apply/1", repair, json, **facts, output=str(target), rows=rows)
    if json != STDOUT:
        has_steps = not isinstance(repair, PlainRepair) or repair.steps
        unchanged = "" if has_steps else ", unchanged, because the repair is “as it is”"
        print(f"{target}: {plural(rows, 'vector')}{unchanged}{', replaced' if replaced else ''}")


@command(
    commands,
    REPAIR,
    "isoscope fix center vectors.npy -o centered.npy",
    "isoscope fix whiten vectors.parquet -o whitened.parquet --html fix.html",
)
def fix(
    method: _MethodArgument,
    source: SourceArgument,
    output: OutputOption,
    save: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            metavar="DIR",
            callback=check_output_name,
            help="Also save the repair in this folder, as fit does.",
        ),
    ] = None,
    html: HtmlOption = None,
    no_text: NoTextOption = False,
    vectors_only: VectorsOnlyOption = False,
    restart: RestartOption = False,
    columns: ColumnsOption = None,
    ids: IdsOption = None,
    layer: LayerOption = None,
    missing: MissingOption = Missing.error,
    zeros: ZerosOption = Zeros.keep,
    components: _ComponentsOption = None,
    clusters: _ClustersOption = None,
    clusterer: _ClustererOption = None,
    axes: _AxesOption = None,
    shrinkage: _ShrinkageOption = None,
    sample: FitSampleOption = None,
    seed: FitSeedOption = None,
    engine: EngineOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    max_memory: MaxMemoryOption = None,
) -> None:
    """Fit a repair, apply it, and compare before and after.

    The comparison fits the repair again, without the rows that it measures.
    """
    from isoscope.transforms.persistence import check_save_folder

    options: dict[str, Any] = {"components": components, "clusters": clusters, "clusterer": clusterer, "method": axes}
    options |= {"shrinkage": shrinkage, "sample": sample, "seed": seed}
    repair = _build_repair(method, options)
    target = parse_target(output)
    check_overwriting([target, html], [source, ids], folders=[save])
    check_result_files(html)
    if save is not None:
        check_save_folder(save)
        _check_apart(save, [target, html])
    with open_engine(engine, scheduler, workers) as running:
        _check_target(target, running)
        store = open_source(source, columns, ids=ids, layer=layer, missing=missing, zeros=zeros)
        _check_not_in_source(target, source)
        fitted, rows = _fit_repair(repair, store, running)
        if save is not None:
            fitted.save(save)
            report_written(save)
        replaced = is_existing_file(target)
        count = _write_repaired(fitted, store, target, vectors_only=vectors_only, restart=restart, engine=running)
        report_written(target, replaced=replaced, detail=f" ({plural(count, 'vector')})")
    name = target.name if isinstance(target, Path) else target.redacted
    try:
        audits, held_out = compare_held_out(_build_repair(method, options), store, name, written=rows)
    except InputError as error:
        raise type(error)(f"{target} was written, but the comparison failed: {error}") from error
    given: dict[str, Any] = {"columns": ",".join(columns or []) or None, "ids": ids, "layer": layer, **options}
    given |= {"missing": missing.value if missing is not Missing.error else None}
    given |= {"zeros": zeros.value if zeros is not Zeros.keep else None}
    held_out = replace(held_out, command=_format_fix(method, store, name, given, html))
    show_comparison([each.without_texts() for each in audits] if no_text else audits, html, held_out=held_out)


def _format_fix(method: str, store: Store, target: str, given: dict[str, Any], html: Path | None) -> str:
    """Return the command that repeats a repair and its comparison; `given` contains its options, None if not given."""
    from isoscope._report.commands import Call

    source = store.name if given["layer"] is None else store.name.rpartition(", layer ")[0] or store.name
    call = Call("fix", (method, source), {name: value for name, value in given.items() if value is not None})
    return shlex.join([*call.to_shell(), "-o", target, "--html", str(html or "report.html")])


def compare_held_out(repair: Repair, store: Store, name: str, *, written: int) -> tuple[list[Audit], HeldOutComparison]:
    """Audit random rows before and after a repair that is fitted on other rows.

    A repair works better on the rows it was fitted on, so measuring these rows would overstate its effect.

    Parameters
    ----------
    repair : Repair
        A repair that is not fitted.
    store : Store
        The rows; if there are more than 40,000, a random sample is used.
    name : str
        The name of the repaired vectors in the second audit.
    written : int
        The number of rows that the written repair was fitted on.
    """
    import numpy as np

    from isoscope._core.memory import limit_sample_size
    from isoscope.auditing.audit import audit
    from isoscope.auditing.compare import HeldOutComparison
    from isoscope.auditing.measure import Settings
    from isoscope.engines.engine import LocalEngine, SampleTally
    from isoscope.stores.open import open_store

    limit = limit_sample_size(2 * Settings().sample, store.dim, store.dtype.itemsize)
    usable: int | np.ndarray = len(store)
    if store.drops_rows:
        usable = LocalEngine().tally(SampleTally(limit, 0, store.name, "drop"), store).partial_result().rows
    sample = np.random.default_rng(0).permutation(usable)[:limit]
    fitted, measured = np.sort(sample[: len(sample) // 2]), np.sort(sample[len(sample) // 2 :])
    repair.fit(store.take(fitted))
    rows = open_store(store.take(measured), **_read_columns(store, measured))
    rows.name = store.name
    dim = repair.transform(np.zeros((1, store.dim), np.float32)).shape[1]
    with InterruptibleProgressBar() as bar:
        before = audit(rows, progress=bar)
    with InterruptibleProgressBar() as bar:
        after = audit(rows.mapped(repair.transform, dim, name=name), progress=bar)
    for each in (before, after):  # the columns were passed as arrays
        each.columns = {role: store.columns.get(role, name) for role, name in each.columns.items()}
    return [before, after], HeldOutComparison(" ".join(str(repair).split()), len(fitted), len(measured), written)


def _read_columns(store: Store, rows: np.ndarray) -> dict[str, Any]:
    """Return the columns that an audit reads, for the given rows; skip a guessed column that cannot be read."""
    from isoscope.stores.columns import ColumnError

    columns: dict[str, Any] = {}
    for role in ("labels", "types", "text", "frequency"):
        try:
            columns[role] = store.column(role, rows)
        except ColumnError:
            if role not in store.guessed:
                raise
    return columns


def _build_repair(method: str, options: dict[str, Any]) -> Repair:
    """Return the unfitted repair for a method; reject an option that the method does not accept."""
    import isoscope.transforms

    name = method.lower().replace("_", "-")
    if name not in _METHODS:
        near = difflib.get_close_matches(name, _METHODS, n=1, cutoff=0.4)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ParameterError(f"{method!r} is not a known method{hint}: choose from {', '.join(_METHODS)}")
    class_name, parameters = _METHODS[name]
    if "clusters" in parameters:
        check_address_space(KMEANS_ADDRESS_SPACE)
    values: dict[str, Any] = {}
    for option, value in options.items():
        if value is None:
            continue
        if option not in parameters:
            takes = f"it takes {', '.join(f'--{each}' for each in parameters)}" if parameters else "it has no options"
            raise ParameterError(f"{name} does not take --{option}: {takes}")
        values[parameters[option]] = _parse_number(option, value)
    if "seed" in parameters:
        values.setdefault("random_state", 0)  # the same command always gives the same repair
    repair: Repair = getattr(isoscope.transforms, class_name)(**values)
    repair._check_parameters()
    return repair


def _parse_number(option: str, value: Any) -> Any:
    """Parse the value of an option that accepts a number or a word."""
    if not isinstance(value, str) or option in ("method", "clusterer"):
        return value
    if value.lower() == "auto":
        return "auto"
    if value.lower() == "none" and option == "shrinkage":
        return None
    try:
        return float(value) if option == "shrinkage" else int(value)
    except ValueError:
        need = "auto, none or a number from 0 to 1" if option == "shrinkage" else "auto or an integer"
        raise ParameterError(f"--{option} {value}: need {need}") from None


def _fit_repair(repair: Repair, store: Store, engine: Engine) -> tuple[Repair, int]:
    """Return the fitted repair and the number of rows it was fitted on."""
    with InterruptibleProgressBar() as bar:
        watched = _ProgressEngine(engine, bar)
        repair.fit(store, engine=watched)
    sketch = getattr(repair, "sketch_", None)
    rows, zeros = (watched.rows, watched.zeros) if sketch is None else (sketch.n, sketch.zeros)
    if sketch is not None and sketch.nonfinite:
        print_message(was_dropped(sketch.nonfinite, "row"))
    if zeros:
        print_message(f"the fit includes {plural(zeros, 'row')} of zeros: pass --zeros drop to leave them out")
    return repair, rows


class _ProgressEngine:
    """An engine that reports the progress of a fit, and counts the rows of its sample and the zeros among them."""

    def __init__(self, engine: Engine, progress: Progress) -> None:
        self._engine, self._progress = engine, progress
        self.each = engine.each
        self.rows = self.zeros = 0

    def tally(self, tally: TallyT, store: Store, progress: Progress = ignore_progress, stage: str = "") -> TallyT:
        from isoscope.engines.engine import SampleTally

        def report(stage: str, done: int, share: float, note: str = "") -> None:
            self._progress("fitting", done, share, note)

        result = self._engine.tally(tally, store, report)
        if isinstance(result, SampleTally):
            vectors = result.partial_result().vectors
            self.rows, self.zeros = len(vectors), int((~vectors.any(axis=1)).sum())
        return result


def _check_target(target: Path | Address, engine: Engine) -> None:
    """Reject a target that cannot be written, before the command does any work."""
    from isoscope.engines.engine import LocalEngine
    from isoscope.stores.write import check_writable, is_folder

    on_cluster = not isinstance(engine, LocalEngine)
    if not isinstance(target, Path):
        if on_cluster:
            raise ParameterError(
                f"{target} is a database, and Dask workers cannot write to it: omit --engine or choose a folder"
            )
    elif not is_folder(target):
        check_writable(target)
        check_output_folders(target)
        if on_cluster:
            raise ParameterError(
                f"{target} is a file, and several processes cannot write to it: choose a folder instead"
            )
    else:
        check_parent(target)


def _check_apart(save: Path, outputs: list[Path | Address | None]) -> None:
    """Reject an output that is the folder of the saved repair, or that is inside it or contains it."""
    folder = Path(os.path.realpath(save))
    for output in outputs:
        if output is None or (not isinstance(output, Path) and "://" in output.place):
            continue
        path = Path(os.path.realpath(expand_user(output if isinstance(output, Path) else output.place)))
        if folder.is_relative_to(path) or path.is_relative_to(folder):
            raise OutputError(f"{output} and the folder of the repair, {save}, overlap: choose another folder")


def _check_not_in_source(target: Path | Address, source: str) -> None:
    """Reject a target inside the source's folder of shards, because the next run would read it as a shard."""
    folder = os.path.expanduser(source)
    if (
        isinstance(target, Path)
        and os.path.isdir(folder)
        and os.path.realpath(target.absolute().parent) == os.path.realpath(folder)
    ):
        raise OutputError(f"{target} is inside the source folder {source}: write to another folder")


def _write_repaired(
    repair: Repair | PlainRepair,
    store: Store,
    target: Path | Address,
    *,
    vectors_only: bool,
    restart: bool,
    engine: Engine,
) -> int:
    """Write the repaired rows of a store; return their number."""
    from isoscope.transforms.apply import repair_store

    options: dict[str, Any] = {"columns": not vectors_only, "restart": restart, "engine": engine}
    try:
        with InterruptibleProgressBar() as bar:
            rows = repair_store(store, repair, target, progress=bar, say=print_message, **options)
    except KeyboardInterrupt as stop:
        raise Interruption("; ".join(getattr(stop, "__notes__", [])) or f"{target} is unchanged") from stop
    report_dropped(store, rows)
    return rows
