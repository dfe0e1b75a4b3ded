"""Write a benchmark's tables into a documentation page, between two markers."""

from pathlib import Path


def write_table(page: Path, table: str, name: str = "measured") -> None:
    """Replace the text between the markers `<!-- name: begin -->` and `<!-- name: end -->` of `page`."""
    begin, end = _marks(name)
    before, rest = page.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
