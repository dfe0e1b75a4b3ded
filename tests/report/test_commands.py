"""The commands on a page reproduce the page: all sources, queries, groups, columns and settings."""

import html
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope._report.audit_page import render_page
from isoscope._report.commands import format_audit_command
from isoscope.auditing.measure import Settings
from isoscope.cli.main import main


def command_on(page):
    """Return the only command below "To reproduce"."""
    parts = page.split("To reproduce")
    assert len(parts) == 2
    return html.unescape(re.sub("<[^>]*>", "", re.search(r"<pre.*?</pre>", parts[1], re.DOTALL)[0])).strip()


@pytest.fixture
def folder(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("docs", 240), ("queries", 40), ("new", 240)):
        vectors = rng.standard_normal((rows, 8)).astype(np.float32)
        columns = {"embedding": list(vectors), "topic": ["a", "b"] * (rows // 2), "line": list(map(str, range(rows)))}
        pq.write_table(pa.table(columns), f"{name}.parquet")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "audit docs.parquet --labels topic --queries queries.parquet --metric euclidean --seed 3",
        "audit docs.parquet --labels topic --by topic",
        "audit docs.parquet new.parquet --labels topic --columns text=line --sample 200",
        "audit docs.parquet --labels topic --top 4",
        "fix whiten docs.parquet --components 4 --method pca --zeros drop -o white.parquet",
    ],
)
def test_page_of_a_command_contains_this_command(folder, command, capsys):
    assert main([*command.split(), "--html", "report.html"]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert command_on(page) == f"isoscope {command} --html report.html"


def test_page_of_arrays_names_every_input(rng):
    X, labels = rng.standard_normal((200, 8)), np.arange(200) % 3
    audit = isoscope.audit(X, queries=X[:20], labels=labels, seed=3)
    assert command_on(render_page([audit])) == (
        "isoscope.audit(vectors, labels=labels, queries=queries, seed=3).to_html('report.html')"
    )
    assert command_on(isoscope.audit(X, 2 * X)._render_page()) == (
        "isoscope.audit(vectors_a, vectors_b).to_html('report.html')"
    )
    assert command_on(isoscope.audit(X, by=labels)._render_page()) == (
        "isoscope.audit(vectors, by=groups).to_html('report.html')"
    )


def test_layer_of_a_file_is_an_option():
    command = format_audit_command(["states.parquet, layer 3"], [{}], Settings())
    assert command == "isoscope audit states.parquet --layer 3 --html report.html"
