"""The result of an audit of several sources: their audits side by side, and how much they agree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._io.files import replace_result
from isoscope._io.json import write_result
from isoscope._render import Displayed, render
from isoscope.auditing.compare import compare_spaces, describe_comparison, name_sources, neighbor_agreements
from isoscope.auditing.finding import VERDICTS

if TYPE_CHECKING:
    from isoscope._core.types import Verdict
    from isoscope._report.pictures import PointCloud
    from isoscope.auditing.audit_result import Audit
    from isoscope.auditing.compare import Agreement

SCHEMA = "isoscope.comparison/1"


@dataclass(repr=False)
class Comparison(Displayed):
    """Audits of several sources side by side.

    `comparison[0]` and `comparison["a.npy"]` are the audit of one source. If the sources have the same rows, such as
    the same texts embedded by two models, `neighbor_agreements` and `correspondence` compare the spaces row by row.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((300, 16))
    >>> comparison = isoscope.audit(X, X + 2)
    >>> comparison
    Comparison(array: look; array: bad; 62% of nearest neighbors in common)
    >>> [audit["mean_cosine"].shown for audit in comparison]
    ['0.001', '0.807']
    """

    audits: list[Audit]

    @cached_property
    def neighbor_agreements(self) -> list[float | None]:
        """The share of nearest neighbors that each source has in common with the first; None if the rows differ."""
        return neighbor_agreements(self.audits)

    @cached_property
    def correspondence(self) -> list[list[Agreement]]:
        """CKA, Procrustes distance and mutual neighbors of each source and the first; empty if the rows differ."""
        return [compare_spaces(self.audits[0], other) for other in self.audits[1:]]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all audits: "ok", "look" or "bad"."""
        return max((audit.verdict for audit in self.audits), key=VERDICTS.index)

    @property
    def headline(self) -> str:
        """How the sources differ, in one sentence."""
        return describe_comparison(self.audits, self.agreement)

    @property
    def agreement(self) -> float | None:
        """The share of nearest neighbors that two sources have in common; None for more than two sources."""
        return self.neighbor_agreements[0] if len(self) == 2 else None

    def __len__(self) -> int:
        return len(self.audits)

    def __iter__(self) -> Iterator[Audit]:
        return iter(self.audits)

    def __getitem__(self, source: int | str) -> Audit:
        if isinstance(source, int):
            return self.audits[source]
        for audit in self.audits:
            if audit.source == source:
                return audit
        raise KeyError(f"{source}: not found; choose from {', '.join(audit.source for audit in self.audits)}")

    def __repr__(self) -> str:
        parts = [f"{audit.source}: {audit.verdict}" for audit in self.audits]
        if self.agreement is not None:
            parts.append(f"{self.agreement:.0%} of nearest neighbors in common")
        return f"Comparison({'; '.join(parts)})"

    def __str__(self) -> str:
        return str(render("Comparison", "text", self))

    def _drawn_sources(self) -> list[tuple[str, Sequence[PointCloud]]]:
        drawn = zip(name_sources(self.audits), self.audits, strict=True)
        return [(name, [audit.pictures]) for name, audit in drawn if audit.pictures is not None]

    def _is_linked(self) -> bool:
        drawn = [audit.pictures.rows for audit in self.audits if audit.pictures is not None]
        same = all(np.array_equal(rows, drawn[0]) for rows in drawn[1:])
        return same and len({audit.n for audit in self.audits}) == 1

    def without_texts(self) -> Comparison:
        """Return the audits without the texts of rows, for a page or a file to share."""
        return Comparison([audit.without_texts() for audit in self.audits])

    # JSON and HTML

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the chart data as JSON-compatible values; see docs/audit-json.md."""
        shared = self.neighbor_agreements
        return {
            "schema": SCHEMA,
            "audits": [audit.to_dict() for audit in self.audits],
            "agreement": shared[0] if len(shared) == 1 else shared,
            "correspondence": [[asdict(each) for each in one] for one in self.correspondence],
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the audits as JSON, atomically."""
        write_result(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one self-contained HTML page, atomically."""
        with replace_result(path) as temporary:
            temporary.write_text(self._render_page(), encoding="utf-8")
