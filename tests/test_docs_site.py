"""The documentation site: every name, command, finding, schema and page is in it. No generator is needed to check."""

import importlib
import json
import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest
import typer

from isoscope.auditing.findings import FINDINGS
from isoscope.cli.main import app

ROOT = Path(__file__).parents[1]
if not (ROOT / "mkdocs.yml").exists():
    pytest.skip("mkdocs.yml is not in this distribution", allow_module_level=True)
yaml = pytest.importorskip("yaml")

from tools import console_examples, explanation_figures  # noqa: E402
from tools.api_page import public_modules  # noqa: E402
from tools.docs_site import reference, staging  # noqa: E402

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
FOR_DEVELOPERS = {"test", "test-torch", "test-core", "lint", "bench", "docs"}


def headings(page):
    return re.findall(r"^#+ .*$", page, flags=re.M)


def test_every_page_is_in_the_navigation_once():
    listed = list(staging.list_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    assert len(set(listed)) == len(listed)
    folders = tuple(target for target in listed if target.endswith("/"))
    generated = {name for name in listed if name.startswith("reference/") and name != "reference/index.md"}
    names = {path.relative_to(DOCS).as_posix() for path in PAGES}
    assert {name for name in names if not name.startswith(folders)} == set(listed) - generated - set(folders)


def test_folders_in_the_navigation_become_their_pages(tmp_path):
    (tmp_path / "gallery").mkdir()
    for name in ("b.md", "index.md", "a.md"):
        (tmp_path / "gallery" / name).write_text("# A", "utf-8")
    nav = staging.expand_navigation([{"Gallery": "gallery/"}, {"Notebooks": "notebooks/"}, "index.md"], tmp_path)
    assert nav == [{"Gallery": ["gallery/index.md", "gallery/a.md", "gallery/b.md"]}, "index.md"]


def test_every_public_name_has_an_entry():
    entries = set(re.findall(r"^::: (\S+)$", "\n".join(reference.python_pages().values()), flags=re.M))
    for module in public_modules():
        for name in importlib.import_module(module).__all__:
            if not name.startswith("__"):
                assert any(entry.endswith(f".{name}") for entry in entries), name
    assert entries == set(reference.find_homes())  # each home has a page
    linked = reference.link_entries((DOCS / "api.md").read_text("utf-8"))
    assert linked.count("[Parameters and examples](reference/python/") == len(entries)


def test_every_command_has_a_page_with_all_its_options():
    pages = reference.command_pages()
    group = typer.main.get_command(app)
    assert set(group.commands) == set(reference.GUIDES)
    for name, command in group.commands.items():
        page = pages[f"reference/commands/{name}.md"]
        for each in [command, *getattr(command, "commands", {}).values()]:
            for parameter in each.params:
                shown = parameter.param_type_name == "option" and not parameter.hidden and parameter.name != "help"
                assert not shown or re.search(rf"^\| `[^`]*{parameter.opts[0]}\b", page, re.M), parameter.name
        assert (DOCS / reference.GUIDES[name]).is_file()
        assert f"[`isoscope {name}`]({name}.md)" in pages["reference/commands/index.md"]


def test_every_finding_has_a_heading_and_an_example_with_its_source():
    page = (DOCS / "findings.md").read_text("utf-8")
    named = [name for line in headings(page) for name in re.findall(r"`(\w+)`", line)]
    assert sorted(named) == sorted(FINDINGS)
    illustrated = reference.illustrate_findings(page)
    assert illustrated.count('<figure class="finding"><svg') == len(FINDINGS)
    for finding, _ in reference.example_findings().values():
        assert finding.judged.source in illustrated


def test_every_schema_has_a_page_with_all_its_fields():
    pages = reference.schema_pages()
    for path in (resources.files("isoscope") / "schemas").iterdir():
        if path.name.endswith(".schema.json"):
            schema = json.loads(path.read_text("utf-8"))
            page = pages[f"reference/schemas/{path.name.removesuffix('.schema.json')}.md"]
            assert all(f"| `{name}` |" in page for name in schema["properties"]), path.name
            assert all(f"## {name}" in headings(page) for name in schema.get("$defs", {})), path.name


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda path: path.name)
def test_links_lead_to_files(path):
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_pages_that_the_code_names_exist():
    for path in [*(ROOT / "src").rglob("*.py"), ROOT / "action.yml"]:
        for name in re.findall(r"docs/[\w/-]+\.md", path.read_text("utf-8")):
            assert (ROOT / name).is_file(), f"{path}: {name}"


def test_figures_of_the_explanation_are_drawn_and_shown():
    shown = set()
    for path in (DOCS / "explanation").glob("*.md"):
        shown |= set(re.findall(r"\(figures/([\w-]+)\.svg\)", path.read_text("utf-8")))
    drawn = {draw.__name__.removeprefix("draw_") for draw in explanation_figures.FIGURES}
    assert shown == drawn == {path.stem for path in explanation_figures.FOLDER.glob("*.svg")}


def test_links_out_of_docs_lead_to_copies_and_figures_have_two_schemes(tmp_path):
    source = tmp_path / "docs"
    figure = source / "explanation" / "figures" / "x.svg"
    figure.parent.mkdir(parents=True)
    figure.write_text("<style>@media screen and (prefers-color-scheme: dark) {}</style>", "utf-8")
    links = "More commands<!-- site: commands.md -->, [e](../n.ipynb). [a](../../src/isoscope/errors.py)"
    text = f"{links} ![b [c]](figures/x.svg)\n\n```\n[d](../../src/x.py)\n```\n"
    adapted = staging._adapt(text, Path("explanation/page.md"), source)
    assert "[a](../source/src/isoscope/errors.py.md)" in adapted
    assert "DatabaseError" in (source / "source/src/isoscope/errors.py.md").read_text("utf-8")
    assert "![b [c]](figures/x.light.svg#only-light)![b [c]](figures/x.dark.svg#only-dark)" in adapted
    assert "[d](../../src/x.py)" in adapted
    assert adapted.startswith("[More commands](commands.md), [e](../n.md). ")
    assert "@media all" in figure.with_suffix(".dark.svg").read_text("utf-8")


def test_notebooks_become_pages(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [
                {"text": ["1\n"]},
                {"data": {"text/html": "<script>2</script>", "text/plain": "2"}},
                {"data": {"image/png": "aGk=", "text/plain": "3"}},
                {"data": {"text/html": ["<b>4\n", "\n", "</b>"], "text/plain": "4"}},
            ],
        },
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    staging.convert_notebook(tmp_path / "n.ipynb")
    page = (tmp_path / "n.md").read_text("utf-8")
    assert page.startswith(
        "# Title\nText\n\n[Download this notebook](n.ipynb)\n\n```python\nprint(1)\n```\n\n```text\n1"
    )
    assert "<script>2</script>" in (tmp_path / "n-1-1.html").read_text("utf-8")
    assert '<div class="output">\n<b>4\n</b>\n</div>' in page
    assert (tmp_path / "n-1-2.png").read_bytes() == b"hi"


# the README and the first pages


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return the output of each example command; each runs once."""
    folder, known = tmp_path_factory.mktemp("examples"), {}

    def output_of(command):
        if command not in known:
            known[command] = console_examples.run(command, folder)
        return known[command]

    return output_of


@pytest.mark.parametrize("path", console_examples.list_pages(), ids=lambda path: path.name)
def test_commands_print_what_the_page_shows(path, outputs):
    page = path.read_text("utf-8")
    assert console_examples.update(page, outputs) == page, "run python tools/console_examples.py"


def test_the_readme_shows_four_commands():
    commands = [command for command, _ in console_examples.find_examples((ROOT / "README.md").read_text("utf-8"))]
    assert [command.split()[1] for command in commands] == ["audit", "similarity", "advise", "same"]


def test_all_contains_every_extra_of_users_and_the_install_page_lists_them():
    page = (DOCS / "start" / "install.md").read_text("utf-8")
    rows = re.findall(r"^\| [^|]+ \| `([\w-]+)` \|", page, flags=re.M)
    assert sorted(rows) == sorted(set(EXTRAS) - FOR_DEVELOPERS)
    included = {"all"}
    while more := {name for each in included for name in _nested(each)} - included:
        included |= more
    assert included == set(EXTRAS) - FOR_DEVELOPERS


def _nested(extra):
    return [
        name
        for each in EXTRAS[extra]
        for names in re.findall(r"^isoscope\[([^]]+)\]", each)
        for name in names.split(",")
    ]
