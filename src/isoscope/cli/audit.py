"""What the commands audit, similarity and convert do."""

from __future__ import annotations

import json as json_format
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace
from isoscope._io.progress import ProgressBar
from isoscope._io.tables import read_entries
from isoscope._report import terminal
from isoscope._report.terminal import render_audit, render_moments, render_side_by_side
from isoscope.auditing.audit import Audit, audit
from isoscope.auditing.compare import HeldOutComparison, compare_findings, neighbor_agreements
from isoscope.auditing.finding import format_percentage
from isoscope.auditing.grouped import GroupedAudit, write_page
from isoscope.auditing.measure import Settings, measure_cosines
from isoscope.auditing.similarity import Similarity
from isoscope.cli.session import interrupted, mute_stdout
from isoscope.engines.engine import Engine, SketchTally
from isoscope.stores.databases.address import Address
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store

_STDOUT = Path("-")  # standard output


@dataclass(frozen=True)
class Request:
    """What was asked of `isoscope audit`."""

    columns: dict[str, str]
    given: dict[str, Path | None]
    """Files with an entry for each row, by role."""
    by: str | None
    """The column whose groups are audited apart."""
    queries: str | None
    html: Path | None
    json: Path | None
    baseline: Path | None
    options: dict[str, Any]


def audit_one(source: str, request: Request) -> tuple[Audit, list[str]]:
    """Audit a source, write what was asked for, show it; gives the audit and how its findings moved."""
    _check_output_folders(request.html, request.json)
    baseline = None if request.baseline is None else Audit.from_json(request.baseline)
    done = _audit_source(source, request, queries=request.queries)
    moved = [] if baseline is None else compare_findings(baseline, done)
    if request.html is not None:
        done.to_html(request.html, baseline=baseline)
        _report_written(request.html)
    if request.json is not None:
        told = done.to_dict()
        if baseline is not None:
            told["changes"] = [change.to_dict() for change in moved]
        _write_json(told, request.json)
    if request.json != _STDOUT:
        show(render_audit(done, baseline))
    return done, [change.direction for change in moved]


def audit_several(sources: list[str], request: Request) -> list[Audit]:
    """Audit several sources and show them side by side."""
    _check_output_folders(request.html, request.json)
    done = [_audit_source(source, request) for source in sources]
    if request.json is not None:
        shared = neighbor_agreements(done)
        told = [each.to_dict() for each in done]
        _write_json(_comparison_dict(told, agreement=shared[0] if len(shared) == 1 else shared), request.json)
    show_comparison(done, request.html, printed=request.json != _STDOUT)
    return done


def show_comparison(
    done: list[Audit], html: Path | None, *, printed: bool = True, held_out: HeldOutComparison | None = None
) -> None:
    """Show audits side by side, on a page and on the terminal."""
    shared = neighbor_agreements(done)
    if html is not None:
        from isoscope._report.audit_page import render_page

        with atomic_replace(html) as temporary:
            agreement = shared[0] if len(shared) == 1 else None
            temporary.write_text(render_page(done, agreement=agreement, held_out=held_out), encoding="utf-8")
        _report_written(html)
    if printed:
        show(render_side_by_side(done, shared, held_out))


def audit_groups(sources: list[str], request: Request) -> list[GroupedAudit]:
    """Audit the groups of one source, or of several to compare; write what was asked for, and show it."""
    _check_output_folders(request.html, request.json)
    done = [_audit_source_groups(source, request) for source in sources]
    if request.json is not None:
        told = [each.to_dict() for each in done]
        _write_json(told[0] if len(told) == 1 else _comparison_dict(told), request.json)
    if request.html is not None:
        write_page(done, request.html)
        _report_written(request.html)
    if request.json != _STDOUT:
        show(terminal.render_grouped_audit(done[0]) if len(done) == 1 else terminal.render_grouped_side_by_side(done))
    return done


def _comparison_dict(told: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"schema": "isoscope.comparison/1", "audits": told, **more}


class InterruptibleProgressBar(ProgressBar):
    """A bar that notices a Ctrl-C which a library swallowed."""

    def __call__(self, stage: str, done: int, share: float, note: str = "") -> None:
        """Show how far a stage is, or end."""
        if interrupted.is_set():
            raise KeyboardInterrupt
        super().__call__(stage, done, share, note)


class _BrokenPipeConsole(Console):
    """A console that says when nobody reads it, and does not end the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(shown: Any) -> None:
    """Print to standard output, for as long as somebody reads it."""
    try:
        _BrokenPipeConsole(highlight=False, markup=False).print(shown)  # a name may hold brackets
    except BrokenPipeError:
        mute_stdout()


def print_similarity(
    source: str, cosines: list[float], columns: dict[str, str], settings: Settings, engine: Engine
) -> None:
    """Print the percentile of each cosine."""
    for cosine in cosines:
        if not -1 <= cosine <= 1:
            raise InputError(f"a cosine of {cosine}: need a number from -1 to 1")
    store = open_store(source, **columns)
    with InterruptibleProgressBar() as bar:
        counts, around = measure_cosines(store, settings=settings.limit_sample(store), progress=bar, engine=engine)
    found = Similarity.of(counts, around)
    for cosine in cosines:
        nearest = found.nearest_percentile(cosine)
        beyond = (
            "" if nearest is None else f"; {format_percentage(nearest)} of rows have their nearest neighbour below it"
        )
        print(f"{cosine:g} is above {format_percentage(found.percentile(cosine))} of the pairs in {store.name}{beyond}")


def sketch_source(source: str, target: Path | None, columns: dict[str, str], nonfinite: str, engine: Engine) -> None:
    """Print what the moments of a source say, and keep its sketch."""
    _check_output_folders(target)
    store = open_store(source, **columns)
    with InterruptibleProgressBar() as bar:
        found = engine.tally(
            SketchTally(nonfinite, types="types" in columns, groups="groups" in columns), store, bar, "summing up"
        ).total
    if not found.n:
        raise InputError(f"{store.name} has no finite row: need one at least")
    if target is not None:
        found.save(target)
        _report_written(target)
    show(render_moments(found, store.name))


def convert(source: str, target: Path | Address, columns: dict[str, str], *, vectors_only: bool, restart: bool) -> None:
    """Copy a store to a file or a database."""
    _check_output_folders(target)
    with InterruptibleProgressBar() as bar:
        store = open_store(source, **columns)
        rows = write_store(store, target, columns=not vectors_only, restart=restart, progress=bar)
    print(f"{target}: {rows:,} vectors")


def _audit_source(source: str, request: Request, queries: str | None = None) -> Audit:
    with InterruptibleProgressBar() as bar:
        store = open_store(source, **_resolve_columns(request))
        done: Audit = audit(store, queries=queries, progress=bar, **request.options)
        return done


def _audit_source_groups(source: str, request: Request) -> GroupedAudit:
    assert request.by is not None
    with InterruptibleProgressBar() as bar:
        store = open_store(source, by=request.by, **_resolve_columns(request))
        done: GroupedAudit = audit(store, by=request.by, progress=bar, **request.options)
        return done


def _resolve_columns(request: Request) -> dict[str, Any]:
    """What each role is: the name of a column, or entries from a file."""
    given: dict[str, Any] = dict(request.columns)
    for role, path in request.given.items():
        if path is not None:
            if role in given:
                raise InputError(f"--{role} and --columns {role}= both say what the {role} are: give one")
            given[role] = read_entries(path)
    return given


def _check_output_folders(*paths: Path | Address | None) -> None:
    """Refuse a target whose folder is missing, before hours of work and not after."""
    for path in paths:
        if path is None or isinstance(path, Address) or path == _STDOUT:
            continue
        if path.is_dir():
            raise InputError(f"{path} is a folder: name the file to write")
        if not path.absolute().parent.is_dir():
            raise InputError(f"{path.parent} is not a folder: make it first")
        if not os.access(path.absolute().parent, os.W_OK):
            raise InputError(f"{path} cannot be written: its folder may not be written to")


def _write_json(told: dict[str, Any], path: Path) -> None:
    text = json_format.dumps(told, indent=2, ensure_ascii=False) + "\n"
    if path == _STDOUT:
        sys.stdout.write(text)
        return
    with atomic_replace(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    _report_written(path)


def _report_written(path: Path) -> None:
    print(f"written: {path}", file=sys.stderr)
