import base64
import dataclasses
import json
import re
import shlex
from datetime import date
from importlib.resources import files

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from isoscope._core.errors import InputError
from isoscope._report import audit_charts
from isoscope._report.audit_page import render_notebook_page, render_page
from isoscope._report.cards import _choose_scale, draw_meter
from isoscope._report.cloud import MAX_GROUPS, CategoricalColoring, find_colorings, render_point_cloud
from isoscope._report.html import tag
from isoscope.auditing.audit import Audit, audit
from isoscope.auditing.causes import remove_shape_note
from isoscope.auditing.compare import HeldOutComparison
from isoscope.auditing.finding import VERDICTS, Finding, Range
from tests.report.parsed import Parsed, allows_itself_alone, in_order

EVIL = "</script><img src=x onerror=alert(1)>\u2028<!--\"'&amp;"
STYLE = files("isoscope._report").joinpath("colors.css").read_text("utf-8")


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.standard_normal((300, 8)) + 4 * np.repeat(generator.standard_normal((3, 8)), 100, axis=0)


@pytest.fixture(scope="module")
def found(rows: np.ndarray) -> Audit:
    return audit(rows, labels=np.repeat(["a", "b", "c"], 100), text=[f"text {i}" for i in range(300)])


@pytest.fixture(scope="module")
def hostile(rows: np.ndarray) -> Audit:
    labels = [EVIL, "plain", "other"] * 100
    made = audit(rows, labels=labels, types=labels, text=[EVIL] * 300)
    made = dataclasses.replace(made, source=EVIL, columns={"labels": EVIL}, skipped={EVIL: EVIL})
    bad = dataclasses.replace(made.findings[0], title=EVIL, meaning=EVIL, advice=EVIL, details={EVIL: [EVIL]})
    return dataclasses.replace(made, findings=[bad, *made.findings[1:]])


# what comes from the data stays data


@pytest.mark.parametrize("other", ["alone", "compared", "baseline"])
def test_data_text_is_escaped(hostile, found, other):
    text = {
        "alone": lambda: render_page([hostile]),
        "compared": lambda: render_page([hostile, found], agreement=0.5),
        "baseline": lambda: render_page([found], baseline=hostile),
    }[other]()
    parsed = Parsed(text)
    assert not parsed.all("img")
    assert not parsed.comments
    assert not [key for _, attributes in parsed.elements for key in attributes if key.startswith("on")]
    assert [attributes for attributes in parsed.all("script") if "type" not in attributes] == [{}]
    assert EVIL in parsed.text


def test_data_text_is_complete_in_the_script(hostile):
    held = Parsed(render_page([hostile])).held("cloud-1")
    assert set(held["text"]) == {EVIL.replace("\u2028", " ")}  # blanks are drawn as one
    assert EVIL.replace("\u2028", " ") in held["colorings"][0]["names"]


def test_fragment_is_escaped(hostile):
    parsed = Parsed(render_notebook_page(hostile))
    plain = {"div", "p", "strong", "bdi", "table", "thead", "tbody", "tr", "th", "td", "span", "em", "code"}
    assert {name for name, _ in parsed.elements} <= plain | {"img"}
    assert not parsed.foreign_images()
    drawings = parsed.drawings()
    assert len(drawings) == 2
    assert {each.tag.partition("}")[2] for drawing in drawings for each in drawing.iter()} <= {
        *("svg", "title", "style", "rect", "path", "line", "text", "g", "circle")
    }
    assert not parsed.ids
    assert EVIL in parsed.text


def test_attributes_are_escaped():
    assert Parsed(tag("a", title='"><b>')).elements == [("a", {"title": '"><b>'})]


def test_lone_surrogate_can_be_written(found):
    broken = dataclasses.replace(found, source="broken \ud800")
    assert "broken ?" in render_page([broken]).encode("utf-8").decode("utf-8")


def test_page_makes_no_network_requests_and_has_strict_csp(found):
    for text in (render_page([found]), render_page([found, found], agreement=1.0)):
        allows_itself_alone(text)
    assert not re.search(r"url\(|@import", STYLE)


def test_same_audit_gives_same_bytes(rows, found):
    again = audit(rows, labels=np.repeat(["a", "b", "c"], 100), text=[f"text {i}" for i in range(300)])
    assert render_page([found]) == render_page([again])


# what is said


def test_every_finding_is_shown_completely(found):
    text = Parsed(render_page([found])).text
    for finding in found.findings:
        for part in (
            finding.title,
            finding.shown,
            finding.interval,
            remove_shape_note(finding.meaning),
            finding.advice,
            finding.judged.source,
        ):
            assert part.replace("`", "") in text, finding.name


def test_problems_come_first_and_are_expanded(found):
    parsed = Parsed(render_page([found]))
    cards = [a["id"].removeprefix("finding-") for name, a in parsed.elements if name == "article"]
    assert cards == [finding.name for cause in found.causes for finding in cause.findings]
    assert sorted(cards) == sorted(finding.name for finding in found.findings if finding.verdict != "ok")
    assert cards, "this cloud has a fault"


def test_headline_is_the_first_cause_everywhere(found):
    assert found.headline == found.causes[0].sentence
    assert re.search(r"<h1>(.*?)</h1>", render_page([found]))[1] == found.headline
    assert found.headline in Parsed(render_notebook_page(found)).text
    assert " ".join(str(found).split()).startswith(found.headline)


def test_findings_are_grouped_under_their_cause(found):
    text = render_page([found])
    groups = re.split(r'<div id="cause-', text)[1:]
    assert [group.split('"')[0] for group in groups] == [cause.name for cause in found.causes]
    for group, cause in zip(groups, found.causes, strict=True):
        assert re.findall(r'<article id="finding-(\w+)"', group) == [finding.name for finding in cause.findings]
    for cause in found.causes[1:]:
        assert tag("h3", cause.sentence) in text


def test_shape_note_stands_below_the_headline_only_if_it_applies(found):
    about = [cause.is_about_shape for cause in found.causes]
    top = render_page([found]).split("</header>")[0]
    assert ("This is about the shape, not about your task." in top) == about[0]
    broken = Finding("broken_rows", "X", 0.2, None, None, Range.lower_is_better(0.1, 0.15, "s"), "m", "a", rows=9)
    other = dataclasses.replace(found, findings=[broken])
    assert "not about your task" not in render_page([other]).split("<main>")[0]


def test_each_suggested_repair_has_its_command(found):
    named = dataclasses.replace(found, source="my vectors.parquet", columns={"labels": "topic"})
    text = Parsed(render_page([named])).text
    repairs = {each for finding in named.findings for each in re.findall(r"`isoscope fix ([a-z-]+)`", finding.advice)}
    assert repairs, "this cloud has a fault"
    for repair in repairs:
        assert f"isoscope fix {repair} 'my vectors.parquet' -o {repair}.parquet --html {repair}.html" in text
    assert text.count("isoscope advise 'my vectors.parquet' --labels topic") == 1
    for words in re.findall(r"isoscope (?:fix|advise|audit) 'my vectors.parquet'[^C]*", text):
        assert shlex.split(words)[2 if "fix" not in words else 3] == "my vectors.parquet"
    for code in re.findall(r'<div class="command"><pre><code>.*?</div>', render_page([named]), re.S):
        assert 'class="copy live"' in code


def test_page_has_a_date_contents_and_a_glossary(found):
    text = render_page([found], made=date(2026, 1, 2))
    parsed = in_order(text)
    assert {"datetime": "2026-01-02"} in parsed.all("time")
    contents = re.search(r"<nav.*?</nav>", text)[0]
    linked = [link["href"][1:] for link in Parsed(contents).all("a")]
    assert linked == re.findall(r'<section id="(\w+)"', text)
    glossary = Parsed(text.split('id="glossary"')[1]).text
    assert "IsoScore" in glossary
    assert "S_inter" not in glossary, "the rows are not tokens"
    assert "docs/" not in parsed.text


def test_headline_is_next_to_the_cosines_and_a_small_cloud(found):
    top = render_page([found]).split("<main>")[0]
    assert "Two random vectors have a cosine of" in top
    drawn = re.search(r"<svg[^>]*small-cloud.*?</svg>", top, re.S)[0]
    assert len(re.findall(r"M[\d.]+ [\d.]+", drawn)) >= len(found.pictures.points)  # some shapes have two parts


def test_texts_can_be_left_out(rows, tmp_path):
    texts = [f"private sentence {i}" for i in range(300)]
    made = audit(rows, text=texts, rows=True, ids=[f"id-{i}" for i in range(300)])
    assert "private sentence" in render_page([made])
    shared = made.without_texts()
    for text in (render_page([shared]), render_page([shared, shared], agreement=1.0), json.dumps(shared.to_dict())):
        assert "private" not in text
        assert "id-" in text or text.count("cloud-2")
    assert "private sentence" in json.dumps(made.to_dict())
    assert shared.findings == made.findings
    by = audit(rows, text=texts, by=np.repeat([1, 2, 3], 100))
    by.to_html(tmp_path / "a.html")
    by.without_texts().to_html(tmp_path / "b.html")
    assert ["private" in (tmp_path / name).read_text(encoding="utf-8") for name in ("a.html", "b.html")] == [
        True,
        False,
    ]


def test_sample_and_borderline_findings_are_reported(found):
    close = Finding(
        "x", "X", 0.09, 0.05, 0.2, Range.lower_is_better(0.1, 0.5, "s"), "m", "a", rows=20_000, sampled=True
    )
    text = Parsed(render_page([dataclasses.replace(found, findings=[close])])).text
    assert "Measured on a sample of 20,000 rows." in text
    assert "Borderline: the 95% interval" in text


def test_space_without_problems_and_space_without_findings(found):
    well = [finding for finding in found.findings if finding.verdict == "ok"]
    assert "No finding needs attention" in render_page([dataclasses.replace(found, findings=well)])
    assert "<h1>" in render_page([dataclasses.replace(found, findings=[])])


def test_columns_that_are_not_used_are_not_among_the_facts(found):
    renamed = dataclasses.replace(found, columns={"labels": "topic"})
    unused = dataclasses.replace(renamed, skipped={"labels": "all rows have the same label"})
    assert "labels from “topic”" in render_page([renamed])
    assert "labels from “topic”" not in render_page([unused])


def test_skipped_findings_are_listed_with_reasons(found):
    text = Parsed(render_page([dataclasses.replace(found, skipped={"two_nn": "too few rows"})])).text
    assert "Not measured: two nn" in text
    assert "too few rows" in text


def test_cosine_table_equals_that_of_the_audit(found):
    parsed = Parsed(render_page([found]))
    for cosine, pairs, nearest in found.similarity.table()[-2:]:
        if 1 <= pairs < 99 and 1 <= nearest < 99:
            assert f"{cosine:.2f}{pairs:.1f}%{nearest:.1f}%" in parsed.text
    assert parsed.held("similarity")[0]["pairs"] == pytest.approx(found.similarity.pairs, abs=1e-6)


def test_two_spaces_are_shown_side_by_side(found, rows):
    other = audit(rows - rows.mean(axis=0))
    other = dataclasses.replace(other, source="centered.npy")
    parsed = Parsed(render_page([found, other], agreement=0.57))
    assert "5.7 of the top 10 results agree" in parsed.text
    for finding in (*found.findings, *other.findings):
        assert finding.shown in parsed.text
        assert finding.meaning in parsed.text
    assert parsed.held("cloud-1")["rows"] == parsed.held("cloud-2")["rows"]
    assert len(parsed.all("figure")) == 10, "five pictures of each"
    assert "it does not apply" in parsed.text, "the second has no labels"


def test_baseline_shows_previous_value_and_direction(found, tmp_path):
    worse = [
        dataclasses.replace(finding, value=0.75 if finding.name == "mean_cosine" else finding.value)
        for finding in found.findings[1:]
    ]
    dataclasses.replace(found, findings=worse).to_json(tmp_path / "old.json")
    old = Audit.from_json(tmp_path / "old.json")
    parsed = Parsed(render_page([found], baseline=old))
    assert f"Was 0.750 (bad): {'same' if found['mean_cosine'].verdict == 'bad' else '▲ better'}" in parsed.text
    assert "Not in the baseline" in parsed.text
    assert "1 new" in parsed.text
    assert "figure" not in dict(Parsed(render_page([old])).elements), "JSON holds no pictures"


@pytest.mark.parametrize("count", [3, 5])
def test_several_spaces_are_shown_side_by_side(found, count):
    text = render_page([dataclasses.replace(found, source=f"space {i}") for i in range(count)])
    parsed = in_order(text)
    allows_itself_alone(text)
    head = re.search(r'<p class="source">(.*?)</p>', text)[1]
    names = [f"space {i}" for i in range(count)]
    bad = sum(finding.verdict == "bad" for finding in found.findings)
    letters = ", ".join("ABCDE"[:count])
    assert re.search(r"<h1>(.*?)</h1>", text)[1] == f"{letters} have the most bad findings: {bad} each."
    assert Parsed(head).text == ", ".join(names[:-1]) + f" and {names[-1]}"
    assert f"{'three' if count == 3 else 'five'} spaces side by side" in parsed.text
    assert len(parsed.all("figure")) == 5 * count
    table = Parsed(re.search(r"<table.*?</table>", text)[0])
    assert len(table.all("td")) == count * len(found.findings)
    assert [f"{letter}: space {i}" in table.text for i, letter in enumerate("ABCDE"[:count])] == [True] * count
    letters = [cell["data-space"] for cell in table.all("td")]  # headings of the cells on narrow screens
    assert letters == list("ABCDE"[:count]) * len(found.findings)
    assert [f"cloud-{i + 1}" in parsed.ids for i in range(count)] == [True] * count


def test_findings_that_a_repair_makes_worse_come_first(found):
    names = [finding.name for finding in found.findings]
    last = found[names[-1]]
    assert last.verdict == "ok"
    worse = dataclasses.replace(last, value=1e9 if last.judged.verdict(1e9) != "ok" else -1e9)
    repaired = dataclasses.replace(found, source="repaired.npy", findings=[*found.findings[:-1], worse])
    rows = re.findall(
        'id="finding-([a-z_]+)"', render_page([found, repaired], held_out=HeldOutComparison("Center()", 5, 5, 10))
    )
    assert rows == [names[-1], *names[:-1]]


def test_headline_of_a_repair_says_what_it_gained_and_lost(found):
    changed = [
        dataclasses.replace(finding, value=-0.01 if finding.name == "labels" else finding.judged.ok[1])
        if finding.name == "labels" or np.isfinite(finding.judged.ok[1])
        else finding
        for finding in found.findings
    ]
    after = dataclasses.replace(found, source="after.npy", findings=changed)
    text = render_page([found, after], agreement=0.414, held_out=HeldOutComparison("Whiten()", 5, 5, 10))
    bad = [sum(finding.verdict == "bad" for finding in each.findings) for each in (found, after)]
    assert bad[1] < bad[0]
    assert re.search(r"<h1>(.*?)</h1>", text)[1] == (
        f"Whiten: {bad[0]} bad → {bad[1]} bad; class separation (silhouette) {found['labels'].shown} → −0.010; "
        "4.1 of 10 neighbors kept."
    )
    top = Parsed(text.split("<main>")[0]).text
    assert "This is not proof that Whiten helps your task." in top
    assert "isoscope.advise(vectors, labels=labels)" in top


def test_headline_of_a_repair_counts_milder_verdicts_if_nothing_is_bad(found):
    mild = dataclasses.replace(found, findings=[each for each in found.findings if each.verdict != "bad"])
    fine = dataclasses.replace(mild, findings=[each for each in mild.findings if each.verdict == "ok"])
    text = render_page([mild, fine], held_out=HeldOutComparison("Center()", 5, 5, 10))
    count = len(mild.findings) - len(fine.findings)
    assert re.search(r"<h1>(.*?)</h1>", text)[1].startswith(f"Center: {count} worth a look → 0 worth a look")


def test_headline_of_several_spaces_names_the_worst_and_its_cause(found):
    fine = dataclasses.replace(found, findings=[each for each in found.findings if each.verdict == "ok"])
    bad = sum(finding.verdict == "bad" for finding in found.findings)
    headline = re.search(r"<h1>(.*?)</h1>", render_page([fine, found, fine]))[1]
    assert headline == f"B has the most bad findings: {bad}. {found.headline}"
    assert "None of the 3 spaces has a bad finding." in render_page([fine] * 3)


def test_page_names_the_one_command_that_reproduces_it(found):
    def command(*sources, held_out=None):
        text = render_page([dataclasses.replace(found, source=each) for each in sources], held_out=held_out)
        notes = text.split('id="notes"')[1].split("</section>")[0]
        return re.findall(r"<code>(.*?)</code>", notes)

    assert len(command("a.npy")) == 1
    (several,) = command("a.npy", "b.npy", "c.npy")
    assert several.startswith("isoscope audit a.npy b.npy c.npy ")
    (mixed,) = command("a.npy", "array", "c.npy")
    assert mixed.startswith("isoscope.audit(&#x27;a.npy&#x27;, vectors_b, &#x27;c.npy&#x27;")
    repair = "isoscope fix all-but-the-top a.npy -o b.npy --html report.html"
    assert command("a.npy", "b.npy", held_out=HeldOutComparison("AllButTheTop()", 5, 5, 10, command=repair)) == [repair]
    assert command("a.npy", "b.npy", held_out=HeldOutComparison("AllButTheTop()", 5, 5, 10)) == []


def test_gauges_of_one_row_share_a_scale_with_numbers(found):
    shifted = [dataclasses.replace(finding, value=finding.value * 0.7 + 0.01) for finding in found.findings]
    text = render_page([found, dataclasses.replace(found, source="b", findings=shifted)])
    rows = re.findall(r'<tr id="finding-\w+">.*?</tr>', text)
    assert len(rows) == len(found.findings)
    marks = [re.findall(r'x="([\d.]+%)" y="50" class="number-mark[^"]*">([^<]+)<', row) for row in rows]
    drawn = [each for each in marks if each]
    assert len(drawn) > len(rows) / 2
    for each in drawn:
        half = len(each) // 2
        assert half >= 2
        assert each[:half] == each[half:], "both gauges have the same numbers at the same places"


@pytest.mark.parametrize(
    ("count", "given", "said"),
    [
        (0, {}, "0 audits were passed: a page needs 1 to 26"),
        (27, {}, "27 audits were passed"),
        (2, {"baseline": True}, "baseline was passed with 2 audits"),
        (3, {"agreement": 0.5}, "agreement was passed with 3 audits"),
        (1, {"agreement": 0.5}, "agreement was passed with 1 audit;"),
        (1, {"held_out": HeldOutComparison("Center()", 5, 5, 10)}, "held_out was passed with 1 audit;"),
    ],
)
def test_incompatible_audits_raise(found, count, given, said):
    if "baseline" in given:
        given = {"baseline": found}
    with pytest.raises(InputError, match=said):
        render_page([found] * count, **given)


def test_a_fragment_has_verdict_and_findings_and_no_script(found):
    parsed = Parsed(render_notebook_page(found))
    assert not parsed.all("script")
    for finding in found.findings:
        assert finding.title in parsed.text
        assert finding.shown in parsed.text


# what is drawn


def test_points_in_the_page_equal_those_of_the_audit(found):
    held = Parsed(render_page([found])).held("cloud-1")
    drawn = np.frombuffer(base64.b64decode(held["points"]), "<i2").reshape(-1, 3)
    points = found.pictures.points
    np.testing.assert_allclose(drawn / 32767 * np.abs(points).max(), points, atol=np.abs(points).max() / 32767)
    assert held["text"] == found.pictures.text


def test_static_image_has_a_dot_per_point(found):
    content, _ = render_point_cloud(found.pictures, "c", "name", found.n)
    still = next(part for part in content.split("<svg") if 'class="still"' in part)
    dots = [a["d"] for a in Parsed(f"<svg{still}").all("path") if "hole" not in a["class"].split()]
    assert "".join(dots).count("h0") == len(found.pictures.points)


def test_square_dots_are_lines_with_a_length_so_that_a_pdf_shows_them(found):
    content, _ = render_point_cloud(found.pictures, "c", "name", found.n)
    paths = [a for a in Parsed(content).all("path") if "square" in a.get("class", "").split()]
    assert paths
    assert not any(re.search(r"h0(?!\.)", a["d"]) for a in paths)


def test_static_image_names_labels_at_their_points_without_overlap(found):
    content, _ = render_point_cloud(found.pictures, "c", "name", found.n)
    names = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="note name">(.*?)<', content)
    assert {name for _, _, name in names} <= set(found.pictures.label_names)
    assert names
    boxes = [(float(x), float(y), 5 * len(name)) for x, y, name in names]
    for i, (x, y, half) in enumerate(boxes):
        assert half <= x <= 1000 - half
        assert all(abs(x - a) > half + b or abs(y - c) > 17 for a, c, b in boxes[:i])


def test_number_of_drawn_points_is_shown(found):
    assert "All 300 vectors are drawn" in render_page([found])
    assert "300 of 100,000 vectors are drawn" in render_page([dataclasses.replace(found, n=100_000)])


@pytest.mark.parametrize("count", [1, 7, 20, 21, 300])
def test_up_to_twenty_names_have_their_own_colors(count):
    codes = np.arange(3 * count) % count
    way = CategoricalColoring("labels", "Label", [f"name {i}" for i in range(count)], codes, "others")
    slots = way.slots
    assert sorted(slots[slots >= 0].tolist()) == list(range(min(count, MAX_GROUPS)))
    np.testing.assert_array_equal(way.point_slots, slots[codes])


def test_the_most_frequent_names_come_first():
    way = CategoricalColoring("labels", "Label", ["rare", "common"], np.array([0, 1, 1, -1]), "others")
    assert way.slots.tolist() == [1, 0]
    assert way.point_slots.tolist() == [1, 0, 0, -1]


def test_only_available_colorings_are_offered(found, rows):
    assert [way.key for way in find_colorings(found.pictures)] == ["labels", "clusters", "lengths", "rows"]
    typed = audit(rows, types=np.repeat(["x", "##y"], 150)).pictures
    assert [way.key for way in find_colorings(typed)] == ["clusters", "kinds", "frequency", "lengths", "rows"]
    plain = dataclasses.replace(typed, clusters=None, kinds=None, frequency=None)
    assert [way.key for way in find_colorings(plain)] == ["lengths", "rows"]


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("form", ["number", "share", "power"])
def test_value_is_drawn_in_the_region_of_its_verdict(verdict, form):
    for judged in (
        Range.lower_is_better(0.1, 0.5, "s", 0.0),
        Range.higher_is_better(0.5, 0.1, "s", 1.0),
        Range((0.2, 0.4), (0.1, 0.5), "s"),
    ):
        value = next(v for v in (0.01, 0.15, 0.3, 0.45, 0.9) if judged.verdict(v) == verdict)
        drawn = draw_meter(Finding("x", "X", value, value * 0.9, value * 1.1, judged, "", "", 1, form))
        place = float(re.search(r'x1="([\d.]+)%"[^>]*class="value"', drawn)[1])
        regions = re.findall(r'x="([\d.]+)%" width="([\d.]+)%"[^>]*class="region (\w+)"', drawn)
        inside = {name for left, width, name in regions if float(left) <= place <= float(left) + float(width)}
        assert verdict in inside
        assert sum(float(width) for _, width, _ in regions) == pytest.approx(100, abs=0.5)


def test_scale_of_a_cosine_ends_at_one():
    judged = Range.lower_is_better(0.1, 0.5, "s", 0.0)
    assert _choose_scale([Finding("mean_cosine", "X", 1.0, 1.0, 1.0, judged, "", "", 1)]).high == 1
    assert _choose_scale([Finding("effective_rank", "X", 1.0, 1.0, 1.0, judged, "", "", 1)]).high > 1


def test_informational_findings_have_no_scale():
    free = Range((-np.inf, np.inf), (-np.inf, np.inf), "s")
    assert draw_meter(Finding("x", "X", 1.0, None, None, free, "", "", 1)) is None


@pytest.mark.parametrize(
    "build",
    [
        audit_charts.spectrum_chart,
        audit_charts.cosine_chart,
        audit_charts.activation_chart,
        audit_charts.barcode_chart,
    ],
)
@pytest.mark.parametrize("shape", [(5, 2), (6, 3), (40, 300)])
def test_charts_of_small_and_wide_data_contain_no_nan_or_inf(build, shape):
    pictures = audit(np.random.default_rng(1).standard_normal(shape)).pictures
    chart = build(pictures, [pictures])
    markup = chart.to_svg()
    assert not re.search(r"nan|inf\b", re.sub(r'aria-label="[^"]*"', "", markup))
    assert 'role="img"' in markup
    assert chart.description in Parsed(markup).all("svg")[0]["aria-label"]


def test_page_with_many_dimensions_and_long_texts_is_small(found):
    generator = np.random.default_rng(2)
    d, m = 4096, 3000
    shares = np.sort(generator.random(d))[::-1] / d
    pictures = dataclasses.replace(
        found.pictures,
        spectrum_raw=shares,
        spectrum_centered=shares,
        spectrum_null=shares,
        activation_mean=generator.standard_normal(d),
        activation_spread=generator.random(d),
        neighbors=None,
        neighbor_scores=None,
        points=generator.standard_normal((m, 3)),
        rows=np.arange(m) * 33,
        lengths=generator.random(m),
        text=["x" * 160] * m,
        labels=np.arange(m) % 300,
        label_names=[f"name {i}" for i in range(300)],
        clusters=np.arange(m) % 9,
        frequency=np.arange(m) + 1,
        bars=np.sort(generator.random(1499))[::-1],
    )
    assert len(render_page([dataclasses.replace(found, pictures=pictures)]).encode()) < 900_000


# who reads it


def test_document_is_valid_html(found):
    for text in (
        render_page([found]),
        render_page([found], baseline=found),
        render_page([found, found], agreement=0.9),
    ):
        in_order(text)


def test_verdicts_are_words_not_only_colors(found):
    words = {"ok": "ok", "look": "worth a look", "bad": "bad"}
    shown = re.findall(r'class="badge (\w+)"><span aria-hidden="true">(.)</span> ([\w ]+)<', render_page([found]))
    assert len(shown) == len(found.findings) > 0
    assert all(words[verdict] == text for verdict, _, text in shown)


def schemes() -> dict[str, dict[str, str]]:
    """The colors in colors.css: the light theme, and the dark theme on top of it."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.S)[:2]
    read = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in (light, dark)]
    assert read[0].keys() == read[1].keys(), "each color has a dark one"
    return {"light": read[0], "dark": read[1]}


def linear(color: str) -> np.ndarray:
    channel = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2."""
    a, b = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
    return (b + 0.05) / (a + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_contrast_with_their_background(scheme):
    colors = schemes()[scheme]
    for ground in ("paper", "panel"):
        for text in ("ink", "quiet", "accent", "ok", "look", "bad"):
            assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
    for verdict in VERDICTS:
        assert contrast(colors[verdict], colors[f"{verdict}-soft"]) >= 4.5, verdict
        assert contrast(colors["ink"], colors[f"{verdict}-band"]) >= 4.5, verdict
    marks = [name for name in colors if re.match(r"hue|shade|other|raw|centered|null", name)]
    for mark in marks:
        assert contrast(colors[mark], colors["panel"]) >= 3, mark


def _least_cielab_distance(hues: np.ndarray, vision: list[list[float]]) -> float:
    """Return the smallest distance between two colors in CIELAB (CIE76), for this kind of color vision."""
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    x = np.clip(hues @ np.transpose(vision), 0, 1) @ to_xyz.T / to_xyz.sum(axis=1)
    f = np.where(x > 216 / 24389, np.cbrt(x), (24389 / 27 * x + 16) / 116)
    lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)
    return float(pdist(lab).min())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_group_colors_are_distinct_for_color_blind_readers(scheme):
    """OKLab distances in the simulation of Machado et al. (2009); the smallest in Okabe and Ito's palette is 0.076."""
    colors = schemes()[scheme]
    hues = np.array([linear(color) for name, color in colors.items() if name.startswith("hue-")])
    vision = {
        "all cones": np.eye(3),
        "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
        "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    }
    cones = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
    cones.append([0.0883024619, 0.2817188376, 0.6299787005])
    lab = [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099]]
    lab.append([0.0259040371, 0.7827717662, -0.808675766])
    assert _least_cielab_distance(hues, vision["no green"]) > 25
    for name, seen in vision.items():
        places = np.cbrt(np.clip(hues @ np.transpose(seen), 0, 1) @ np.transpose(cones)) @ np.transpose(lab)
        apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
        assert apart[np.triu_indices(len(hues), 1)].min() > 0.09, name
