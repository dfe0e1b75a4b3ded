"""What a study is: arms to run one by one, and what becomes of their results."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from isoscope._core.errors import InputError
from isoscope.studies.published import read_published

if TYPE_CHECKING:
    from isoscope.studies.datasets import DataSource, Model
    from isoscope.studies.outcome import Outcome
    from isoscope.studies.published import Published

Results = Mapping[str, dict[str, Any]]
"""What each finished arm gave, by its key."""


@dataclass(frozen=True)
class Parameter:
    """Something that a run can be told, with its value in a full and in a quick run.

    One that `widens` adds or leaves out arms and changes none: a run can be gone on with under another value of it.
    """

    full: Any
    quick: Any
    words: str
    widens: bool = False

    def parse(self, name: str, text: str) -> Any:
        """The value that was typed; its kind is the default's."""
        like = self.full
        try:
            if isinstance(like, tuple):
                kind = type(like[0]) if like else str
                return _check_unique(
                    name, [_parse_value(kind, word.strip()) for word in text.split(",") if word.strip()]
                )
            return _parse_value(type(like), text)
        except InputError:
            raise
        except (ValueError, KeyError):
            wanted = {bool: "yes or no", int: "a whole number", float: "a number"}.get(type(like), "a list with commas")
            raise InputError(f"{name} is {text}: need {wanted}, such as {format_value(like)}") from None


def _parse_value(kind: type, text: str) -> Any:
    """A single value of what was typed; a `ValueError` or a `KeyError` if it is none."""
    if kind is bool:
        return {"yes": True, "no": False}[text]
    found = kind(text)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(text)
    return found


def _check_unique(name: str, found: list[Any]) -> tuple[Any, ...]:
    twice = [each for i, each in enumerate(found) if each in found[:i]]
    if twice:
        raise InputError(f"{name} has {twice[0]} twice: name each once")
    return tuple(found)


def format_value(value: Any) -> str:
    """A parameter's value as it is typed.

    >>> format_value(("cola", "mrpc")), format_value(True), format_value(0.5)
    ('cola,mrpc', 'yes', '0.5')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else f"{value}"


@dataclass(frozen=True)
class Setting:
    """What a run was asked for."""

    models: tuple[Model, ...]
    data: DataSource
    values: Mapping[str, Any]
    quick: bool

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class ArmContext:
    """Where an arm works, and whom it tells how far it is."""

    folder: Path
    """The arm's own: what it leaves there it finds again if it was interrupted. It is removed when the arm is done."""
    shared: Path
    """The run's: what several arms use, such as embedded texts. It is kept."""
    tell: Callable[[float, str], None]
    """Is told the share of the arm that is done, and a few words such as a score."""


@dataclass(frozen=True)
class Arm:
    """A piece of work that is done as a whole: what it gives is kept, and is the same whenever it is run."""

    key: str
    """Unique among the arms, with everything in it that makes this arm another: "cola/all-MiniLM-L6-v2/seed-0"."""
    words: str
    run: Callable[[ArmContext], dict[str, Any]]
    """Gives what can be written as JSON; NaN is allowed."""
    cost: float = 1.0
    """How long it takes in relation to other arms, for the time left."""


class Study(ABC):
    """A paper as a protocol. A module of a study holds no mathematics: it calls the library."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What is done, in two or three sentences."""
    models: ClassVar[tuple[str, ...]]
    """The paper's models by their names on the Hugging Face hub."""
    quick_models: ClassVar[tuple[str, ...]]
    parameters: ClassVar[Mapping[str, Parameter]]
    extra: ClassVar[str] = ""
    """The extra of the package that it needs, such as train."""

    @property
    def published(self) -> Published:
        """The paper's numbers and claims."""
        return read_published(self.name)

    def extra_for(self, setting: Setting) -> str:
        """The extra that a run needs, where not every run needs the same."""
        return self.extra

    @abstractmethod
    def data_sets(self, setting: Setting) -> Sequence[str]:
        """The names of the data sets that the arms of a setting read: they are looked for before the work begins."""

    @abstractmethod
    def arms(self, setting: Setting) -> list[Arm]:
        """What is to be done, in its order: arms that a first look needs come first."""

    @abstractmethod
    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Tables, figures and verdicts of the arms that are done; it must do with some of them lacking."""
