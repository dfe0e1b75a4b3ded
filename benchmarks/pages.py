"""Tables that a benchmark writes into a page of the documentation, between two marks."""

from pathlib import Path


def put(page: Path, table: str, name: str = "measured") -> None:
    """Replace what stands between the marks `<!-- name: begin -->` and `<!-- name: end -->` of `page`."""
    begin, end = _marks(name)
    before, rest = page.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


def between(page: Path, name: str) -> str:
    """What stands between those marks."""
    begin, end = _marks(name)
    return page.read_text(encoding="utf-8").split(begin)[1].split(end)[0].strip("\n")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
