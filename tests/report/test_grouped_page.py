import dataclasses
import re

import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope._report.grouped_page import render_grouped_page
from isoscope._report.grouped_panels import choose_panels
from isoscope._report.grouped_text import describe_worst_group
from isoscope._report.narrate import describe_groups
from isoscope.auditing.finding import VERDICTS
from tests.report.chromium import Chromium, require_browser
from tests.report.groupeds import layered, named, told
from tests.report.parsed import Parsed, allows_itself_alone, in_order

EVIL = "</script><img src=x onerror=alert(1)>\u2028<!--\"'&amp;"


def ranged():
    """Groups that are ranges of numbers."""
    found = layered()
    names = ["1–9", "10–99", "100–999"]
    return dataclasses.replace(
        found,
        by="frequency",
        groups=dict(zip(names, found.groups.values(), strict=True)),
        values=dict(zip(names, (4, 40, 400), strict=True)),
    )


KINDS = {
    "layers": lambda: [layered()],
    "one group": lambda: [layered(1)],
    "two models": lambda: [layered(), layered(5, seed=1, source="deeper")],
    "models of one depth": lambda: [layered(), layered(seed=1, source="other")],
    "names": lambda: [named()],
    "names twice": lambda: [named(), named("again", ("news", "art"))],
    "ranges": lambda: [ranged()],
    "no pictures": lambda: [told([0.1, 0.4, 0.7])],
    "gaps": lambda: [told([0.1, np.nan, 0.7]), told([np.nan, np.nan, 0.2])],
    "nothing": lambda: [told([np.nan])],
}


@pytest.fixture(params=KINDS)
def audits(request):
    return KINDS[request.param]()


# every page


def test_pages_are_valid_html_with_strict_csp(audits):
    text = render_grouped_page(audits)
    in_order(text)
    allows_itself_alone(text)


def test_drawings_contain_no_nan_or_inf(audits):
    for drawing in re.findall(r"<svg.*?</svg>", render_grouped_page(audits)):
        assert not re.search(r"nan|inf\b", re.sub(r">[^<]*<", "><", re.sub(r'aria-label="[^"]*"', "", drawing)))


def test_changes_are_described_first(audits):
    header = Parsed(re.search(r"<header>.*?</header>", render_grouped_page(audits))[0]).text
    for audit in audits:
        assert all(sentence in header for sentence in describe_groups(audit, 2))
        assert audit.source in header


def test_every_measurement_has_a_figure_with_a_caption(audits):
    drawn, zero = choose_panels(audits)
    part = re.search(r'<section id="courses".*?</section>', render_grouped_page(audits))[0]
    figures = re.findall(r"<figure.*?</figure>", part)
    assert len(figures) == len(drawn)
    titles = [Parsed(re.search(r"<h3>.*?</h3>", figure)[0]).text for figure in figures]
    assert sorted(titles) == sorted(panel.title for panel in drawn)
    for figure in figures:
        assert Parsed(re.search(r"<figcaption.*?</figcaption>", figure)[0]).text
        assert 'role="img"' in figure
    assert all(title in Parsed(part).text for title in zero)


def test_tables_have_every_group_and_verdict(audits):
    tables = re.findall(r"<table.*?</table>", render_grouped_page(audits))
    drawn, _ = choose_panels(audits)
    for audit, table in zip(audits, tables, strict=True):
        parsed = Parsed(table)
        for name, group in audit.groups.items():
            assert name in parsed.text
            for panel in drawn:
                for trace in panel.judged_traces:
                    found = group.get(trace.finding)
                    assert found is None or found.shown in parsed.text
        judged = {trace.finding for panel in drawn for trace in panel.judged_traces}
        counts = sum(finding.name in judged for group in audit.groups.values() for finding in group.findings)
        assert len(re.findall(r'class="verdict-sign', table)) == counts


def test_same_audits_give_same_bytes():
    assert render_grouped_page([layered()]) == render_grouped_page([layered()])


def test_data_text_is_escaped():
    found = named("words", (EVIL, "plain"))
    hostile = dataclasses.replace(found, source=EVIL, by=EVIL, skipped={EVIL: EVIL})
    for audits in ([hostile], [hostile, hostile]):
        parsed = Parsed(render_grouped_page(audits))
        assert not parsed.all("img")
        assert not parsed.comments
        assert not [key for _, attributes in parsed.elements for key in attributes if key.startswith("on")]
        assert parsed.text.count(EVIL) > 5


# where groups stand


def ticks(text):
    return re.findall(r'class="tick[^"]*">([^<]+)<', re.search(r'<section id="courses".*?</section>', text)[0])


def test_models_of_different_depth_share_an_axis_of_relative_depth():
    text = render_grouped_page(KINDS["two models"]())
    assert "relative depth (1: last layer)" in text
    assert "deeper, layer 4" in text, "the number is read on pointing"
    assert "depth (1" not in render_grouped_page(KINDS["models of one depth"]())


def test_ranges_are_evenly_spaced_ticks():
    found = ticks(render_grouped_page([ranged()]))
    assert {"1–9", "10–99", "100–999"} <= set(found)


def test_names_of_all_audits_are_rows():
    text = render_grouped_page(KINDS["names twice"]())
    rows = re.findall(r'<span title="([^"]+)" class="name">|<span class="name" title="([^"]+)">', text)
    assert {a or b for a, b in rows} == {"sport", "news", "a &lt; b", "art"}
    assert "A is on top in each row" in text


def test_details_are_dashed_next_to_judged_values():
    text = render_grouped_page([layered()])
    chart = next(part for part in text.split("<figure>") if part.startswith("<h3>Anisotropy"))
    assert 'class="line hue-0"' in chart
    assert 'class="line hue-0 dashed"' in chart


def test_values_within_clusters_are_drawn_where_known():
    groups = {}
    for name, group in layered().groups.items():
        own = [
            dataclasses.replace(f, details=f.details | {"within_clusters": 0.05}) if f.name == "inter_type" else f
            for f in group.findings
        ]
        groups[name] = dataclasses.replace(group, findings=own)
    text = render_grouped_page([dataclasses.replace(layered(), groups=groups)])
    assert "different types, inside clusters" in text
    assert "same type, inside clusters" not in text
    assert "the mean of each cluster is subtracted" in text
    assert "the mean of each cluster" not in render_grouped_page([told([0.1, 0.2], finding="inter_type")])


# what is said


def test_problems_are_reported_with_their_groups():
    found = layered()
    header = Parsed(re.search(r"<header>.*?</header>", render_grouped_page([found]))[0]).text
    wrong = {f.title for group in found.groups.values() for f in group.findings if f.verdict != VERDICTS[0]}
    assert wrong
    assert all(title in header for title in wrong)


def test_zero_findings_are_listed_where_measured():
    text = render_grouped_page([told([0.0, np.nan], finding="duplicates")])
    assert "values are 0: duplicates." in text


def test_missing_groups_are_listed_with_reasons():
    found = dataclasses.replace(layered(), skipped={"7": "3 rows: need 10"}, left_out=1234)
    text = Parsed(render_grouped_page([found])).text
    assert "Not measured: 7" in text
    assert "3 rows: need 10" in text
    assert "1,234 rows in total, including those of the groups that were not measured" in text
    assert "1,234 rows that belong to none of these" in render_grouped_page([dataclasses.replace(found, skipped={})])


def test_published_isoscores_are_mentioned():
    group = layered().groups["1"]
    own = [
        dataclasses.replace(f, title="IsoScore (as published)") if f.name == "isoscore" else f for f in group.findings
    ]
    found = dataclasses.replace(layered(), groups=layered().groups | {"1": dataclasses.replace(group, findings=own)})
    assert "In layer 1, a few long rows" in render_grouped_page([found])


@pytest.mark.parametrize(
    ("audits", "said"),
    [
        ([], "0 grouped audits were passed: a page needs 1 to 7"),
        ([layered()] * 8, "8 grouped audits"),
        (
            [layered(), named()],
            "the audits are grouped by layer and by label: a page needs audits grouped by the same column",
        ),
        ([dataclasses.replace(layered(), groups={})], "model was grouped by layer, but none of the groups was audited"),
    ],
)
def test_invalid_audits_raise(audits, said):
    with pytest.raises(InputError, match=said):
        render_grouped_page(audits)


def test_page_of_three_13_layer_models_is_small():
    generator = np.random.default_rng(0)
    m = 3000
    base = layered().groups["0"]

    def group(i):
        many = dataclasses.replace(
            base.pictures,
            points=generator.standard_normal((m, 3)),
            rows=generator.integers(0, 10**6, m),
            lengths=generator.random(m),
            labels=generator.integers(0, 3, m),
            clusters=generator.integers(0, 9, m),
            kinds=generator.integers(0, 5, m),
            frequency=generator.integers(1, 9999, m),
            text=[f"{i} {k} " + "x" * 150 for k in range(m)],
            neighbors=generator.integers(0, m, (m, 10)),
            neighbor_scores=generator.random((m, 10)),
        )
        return dataclasses.replace(base, pictures=many, n=260_000)

    def audit(j):
        groups = {str(i): group((j, i)) for i in range(13)}
        return dataclasses.replace(layered(), groups=groups, values={str(i): i for i in range(13)}, source=f"m{j}")

    assert len(render_grouped_page([audit(j) for j in range(3)]).encode()) < 8_000_000


# the worst first


def test_headline_names_the_worst_group_and_its_consequence():
    text = render_grouped_page([told([0.1, 0.7, 0.2])])
    assert Parsed(re.search(r"<h1.*?</h1>", text)[0]).text.startswith("Layer 1 is the worst of 3 layers: ")
    header = Parsed(re.search(r"<header>.*?</header>", text)[0]).text
    assert "in layer 1 is 0.700 (ok below 0.300, bad from 0.600)" in header
    same = Parsed(re.search(r"<h1.*?</h1>", render_grouped_page([told([0.4, 0.5, 0.2])]))[0]).text
    assert same == "In 2 of 3 layers, rows look alike."
    header = render_grouped_page([told([0.7, 0.9, 0.8])]).split("<main")[0]
    assert "In all 3 layers, rows look alike." in header, "no layer is the worst because of a finding that all have"
    assert "mean_cosine ranges from 0.700 to 0.900 there (ok below 0.300, bad from 0.600)." in header
    assert "No finding needs attention in any of the 2 layers." in render_grouped_page([told([0.1, 0.2])])


def test_group_with_more_findings_names_them_and_the_terminal_has_the_same_headline():
    found = told([0.7, 0.9])
    more = dataclasses.replace(found.groups["1"]["mean_cosine"], name="isoscore", title="IsoScore")
    found.groups["1"].findings.append(more)
    headline, numbers = describe_worst_group(found)
    assert headline == "In both layers, rows look alike."
    assert numbers.endswith("Layer 1 needs the most attention, also because of IsoScore.")
    assert str(found).startswith(f"{headline}\n{numbers[:60]}")
    assert headline in render_grouped_page([found])


def test_groups_without_an_order_are_listed_from_the_worst():
    text = render_grouped_page([told([0.4, 0.1, 0.7, 0.5], names=["a", "b", "c", "d"], by="label")])
    assert re.findall(r'class="name" title="(.)"', text) == ["c", "d", "a", "b"]
    table = re.search(r"<table.*?</table>", text)[0]
    assert re.findall(r'<th scope="row" title="(.)"', table) == ["c", "d", "a", "b"]


def test_charts_with_bad_groups_come_first():
    audits = [layered()]
    part = re.search(r'<section id="courses".*?</section>', render_grouped_page(audits))[0]
    verdicts = [
        max((VERDICTS.index(each) for each in re.findall(r'class="at (\w+) ', figure)), default=0)
        for figure in re.findall(r"<figure.*?</figure>", part)
    ]
    assert verdicts == sorted(verdicts, reverse=True)
    assert verdicts[0] == VERDICTS.index("bad") > verdicts[-1]


def test_outlier_is_named_in_the_caption():
    text = render_grouped_page([told([0.01, 0.02, 0.015, 0.02, 0.9, 0.01])])
    assert "Outside this scale: layer 4 (0.900)." in text


# in a browser


@pytest.fixture(scope="module")
def browser():
    with Chromium(require_browser()) as running:
        yield running


@pytest.fixture
def tab(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_grouped_page(KINDS["two models"]()), encoding="utf-8")
    tab = browser.open(path.as_uri())
    tab.finish()
    yield tab
    assert tab.complaints == []
    assert tab.requests == [path.as_uri()]
    tab.close()


def test_tables_are_printed_with_all_columns(tab):
    tab.send("Emulation.setEmulatedMedia", media="print")
    tab.resize(720)
    edges = "[...document.querySelectorAll('.by-group :is(th, td)')].map(each => each.getBoundingClientRect().right)"
    assert max(tab.run(edges)) <= 720
    assert wide(tab) == 0


def wide(tab) -> int:
    """Return by how many pixels the page is wider than its window."""
    return tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_static_images_share_one_coloring(tab):
    stills = "JSON.stringify([...document.querySelectorAll('.tile svg')].map(s => s.innerHTML.length))"
    classes = "[...new Set([...document.querySelectorAll('.tile svg path')].map(p => p.getAttribute('class')))].join()"
    before = tab.run(stills), tab.run(classes)
    tab.run("document.querySelector('.shared [data-color=lengths]').click()")
    assert "shade-5" in tab.run(classes)
    assert tab.run("document.querySelector('[data-legend=kinds]').hidden") is True
    assert tab.run("document.querySelector('[data-legend=lengths]').checkVisibility()") is True
    tab.run("document.querySelector('.shared [data-color=kinds]').click()")
    assert tab.run(classes) == before[1]


def test_only_one_point_cloud_is_open_at_a_time(tab):
    tab.run("document.querySelectorAll('.tile button')[4].focus()")
    tab.run("document.querySelectorAll('.tile button')[4].click()")
    tab.finish()
    assert tab.run("document.getElementById('stage-title').textContent") == "Point cloud of deeper, layer 1"
    picture = "document.querySelector('dialog canvas').toDataURL()"
    start = tab.run(picture)
    tab.press("ArrowRight")
    tab.finish()
    assert tab.run(picture) != start
    tab.run("document.querySelector('dialog [data-color=lengths]').click()")
    assert tab.run("document.querySelector('.shared [data-color=lengths]').ariaPressed") == "true"
    tab.run("document.querySelector('[data-close]').click()")
    assert tab.run("document.querySelector('dialog').open") is False
    assert tab.run("document.activeElement.getAttribute('aria-label')") == "Rotate the cloud of deeper, layer 1"
    tab.run("document.querySelector('.tile svg').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    assert tab.run("document.querySelector('dialog').open") is True


def test_page_never_scrolls_sideways(tab):
    for width in (320, 390, 1280):
        tab.resize(width, 800)
        assert tab.run("document.documentElement.scrollWidth - innerWidth") <= 0, width


def test_without_scripts_images_are_shown_without_buttons(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_grouped_page([layered()]), encoding="utf-8")
    tab = browser.open(path.as_uri(), scripts=False)
    shot = tab.send("Runtime.evaluate", expression="1")  # scripts of the page are off, those of the test are not
    assert shot["result"]["value"] == 1
    assert tab.run("[...document.querySelectorAll('.tile svg')].every(s => s.checkVisibility())")
    assert tab.run("[...document.querySelectorAll('button')].every(b => !b.checkVisibility())")
    assert tab.run("document.querySelector('[data-legend]').checkVisibility()")
    tab.close()
