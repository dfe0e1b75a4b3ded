"""Tables that a benchmark writes into a page of the documentation, between two marks."""

from pathlib import Path

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def put(page: Path, table: str) -> None:
    """Replace what stands between the marks of `page`."""
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
