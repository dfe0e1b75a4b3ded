"""Compute hidden states that several arms share once, and save them in the run's shared folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope.embedding.embed import embed

if TYPE_CHECKING:
    from isoscope.stores.store import Store
    from isoscope.studies.models import Model
    from isoscope.studies.study import ArmContext


def embed_once(
    context: ArmContext,
    name: str,
    model: Model,
    texts: Callable[[], Sequence[str]],
    *,
    weight: float = 1.0,
    finish: Callable[[Store, Path], None] | None = None,
    **options: Any,
) -> Path:
    """Embed texts into the run's shared folder, unless an earlier arm did so, and return the folder of the states.

    The folder gets its final name when the states are complete. An interrupted embedding is resumed.

    Parameters
    ----------
    context : ArmContext
        The arm that needs the states.
    name : str
        The path of the states inside the shared folder.
    model : Model
        The model that embeds the texts.
    texts : callable
        A function that returns the texts; it is not called if the states exist.
    weight : float
        The share of the arm's progress bar that embedding takes.
    finish : callable, optional
        A function that is called with the store and its folder before the folder gets its final name, to check the
        states or to add files.
    **options
        Options of `isoscope.embed`.
    """
    folder = context.shared / name
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        unfinished.mkdir(parents=True, exist_ok=True)  # a folder in spite of the dot in its name

        def report(stage: str, done: int, share: float, note: str = "") -> None:
            context.tell(weight * share, f"embedding {folder.name}, {stage}")

        store = embed(model.place, texts(), unfinished, progress=report, **options)
        if finish is not None:
            finish(store, unfinished)
        unfinished.rename(folder)
    return folder
