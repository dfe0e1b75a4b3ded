import dataclasses
import json
import re

import numpy as np
import pytest

from isoscope._report.audit_page import render_page
from isoscope.auditing.audit import Audit, audit
from isoscope.auditing.finding import format_percentage
from tests.report.chromium import Chromium, Tab, require_browser

EVIL = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"


@pytest.fixture(scope="module")
def browser():
    with Chromium(require_browser()) as running:
        yield running


@pytest.fixture(scope="module")
def found() -> Audit:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((300, 8)) + 4 * np.repeat(generator.standard_normal((3, 8)), 100, axis=0)
    kinds = np.repeat(["first", "second", "third"], 100)
    return audit(rows, labels=kinds, types=kinds, text=[f"{EVIL} {i}" for i in range(300)])


@pytest.fixture(scope="module")
def address(found, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page([found]), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def tab(browser, address):
    """Open the page; at the end, check that it logged no error, requested nothing and ran no injected code."""
    tab = browser.open(address)
    tab.finish()
    yield tab
    assert tab.complaints == []
    assert tab.requests == [address]
    assert tab.run("window.ran") is None
    tab.close()


def drawn(tab: Tab) -> str:
    tab.finish()
    return tab.run("document.querySelector('canvas').toDataURL()")


PIXELS = """(() => {
  const canvas = document.querySelector("canvas");
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  return Array.from({ length: data.length / 4 }, (_, i) => i).filter((i) => data[4 * i + 3] > 0);
})()"""


def inked(tab: Tab) -> int:
    """Return the number of pixels of the canvas that are not empty."""
    tab.finish()
    return tab.run(f"{PIXELS}.length")


def legend(tab: Tab) -> str:
    return tab.run("document.querySelector('.legend.live').innerText")


def pressed(tab: Tab, selector: str) -> list[str]:
    return tab.run(f"[...document.querySelectorAll('{selector}')].map(b => b.getAttribute('aria-pressed'))")


def wide(tab: Tab) -> int:
    """Return by how many pixels the page is wider than its window."""
    return tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def find_a_point(tab: Tab) -> None:
    """Move the mouse over the drawing until it is over a point."""
    tab.middle("canvas")
    left, top, width = tab.run(
        "(r => [r.left, r.top, r.width])(document.querySelector('canvas').getBoundingClientRect())"
    )
    places = np.array(tab.run(PIXELS))
    for place in np.random.default_rng(0).permutation(places)[:50].tolist():
        tab.hover(left + place % width, top + place // width)
        if not tab.run("document.querySelector('.tip').hidden"):
            return
    pytest.fail("no point was met")


def test_hovered_point_shows_its_text_without_running_it(tab):
    find_a_point(tab)
    said = tab.run("document.querySelector('.tip').innerText")
    assert EVIL in said
    assert "row " in said
    assert "label " in said
    assert "cluster " in said
    assert "frequency 100" in said
    assert tab.run("document.querySelectorAll('.tip img, .tip script').length") == 0


def test_one_coloring_is_active_at_a_time_with_its_legend(tab):
    selector = "[data-color]"
    names = tab.run(f"[...document.querySelectorAll('{selector}')].map(b => b.textContent)")
    assert names == ["Label", "Cluster", "Frequency", "Length", "Row number"]
    legends = []
    for i in range(len(names)):
        tab.click(selector, i)
        assert pressed(tab, selector) == ["true" if i == j else "false" for j in range(len(names))]
        legends.append(legend(tab))
    assert "first" in legends[0]
    assert "cluster 1" in legends[1]
    assert "frequency from 100 to 100" in " ".join(legends[2].split())
    assert "length from" in legends[3]


def test_legend_entry_toggles_its_points(tab):
    before = inked(tab)
    tab.click(".legend.live button")
    assert pressed(tab, ".legend.live button")[0] == "false"
    without = inked(tab)
    assert 0.5 * before < without < 0.8 * before
    tab.click(".legend.live button")
    assert inked(tab) == before
    tab.click(".legend.live .all")
    assert inked(tab) < 0.5 * without, "the axes alone are left"


def test_keys_rotate_zoom_and_step_through_points(tab):
    tab.run("document.querySelector('canvas').focus()")
    start = drawn(tab)
    seen = {start}
    for key in ("ArrowLeft", "ArrowUp", "+", "-"):
        tab.press(key)
        seen.add(drawn(tab))
    assert len(seen) == 4, "the last undoes the one before"
    tab.press("0")
    assert drawn(tab) == start
    told = []
    for key in ("n", "n", "p"):
        tab.press(key)
        told.append(tab.run("document.querySelector('.spoken').textContent"))
    assert told[0] == told[2] != told[1]
    assert EVIL in told[0]
    tab.press("Escape")
    assert tab.run("document.querySelector('.tip').hidden")


def test_mouse_rotates_3d_and_pans_2d(tab):
    x, y = tab.middle("canvas")
    start = drawn(tab)
    tab.drag(x, y, x + 120, y + 30)
    turned = drawn(tab)
    assert turned != start
    tab.click("[data-view='2']")
    assert pressed(tab, "[data-view]") == ["false", "true"]
    flat = drawn(tab)
    assert flat != turned
    tab.drag(*tab.middle("canvas"), x + 60, y)
    assert drawn(tab) != flat
    tab.click("[data-zoom='reset']")
    tab.hover(1, 1)
    assert drawn(tab) == flat


def test_wheel_scrolls_the_page_and_zooms_only_with_ctrl(tab):
    x, y = tab.middle("canvas")
    start, top = drawn(tab), tab.run("scrollY")
    tab.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
    tab.run("new Promise(done => setTimeout(done, 300))")
    assert tab.run("scrollY") < top
    assert drawn(tab) == start
    tab.mouse("mouseWheel", *tab.middle("canvas"), deltaX=0, deltaY=-120, modifiers=2)
    tab.run("new Promise(done => setTimeout(done, 100))")
    tab.hover(1, 1)
    assert drawn(tab) != start


def test_swipe_rotates_and_can_block_page_scrolling(tab):
    tab.resize(390, 800, dense=2, touch=True)
    x, y = tab.middle("canvas")
    start = drawn(tab)

    def touch(kind: str, *places: tuple[float, float]) -> None:
        tab.send("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": a, "y": b} for a, b in places])

    touch("touchStart", (x, y))
    for step in range(1, 6):
        touch("touchMove", (x + 12 * step, y))
    touch("touchEnd")
    assert drawn(tab) != start
    tab.click("[data-hold]")
    assert tab.run("getComputedStyle(document.querySelector('canvas')).touchAction") == "none"


def test_entered_cosine_shows_the_percentile_of_the_audit(browser, found, tmp_path):
    steps = np.round(found.similarity.pairs, 1)  # as copies make them: many quantiles are equal
    stepped = dataclasses.replace(found.similarity, pairs=steps, nearest=np.zeros(0))
    two = [found, dataclasses.replace(found, source="stepped", similarity=stepped)]
    path = tmp_path / "cosines.html"
    path.write_text(render_page(two), encoding="utf-8")
    tab = browser.open(path.as_uri())

    def say(text: str) -> str:
        tab.run("document.getElementById('cosine').value = ''")
        tab.click("#cosine")
        tab.type(text)
        return tab.run("document.querySelector('output').textContent")

    for cosine in (-1.0, -0.35, 0.0, 0.1, 0.42, 0.425, 0.77, 0.8888, 0.9, 1.0):
        values = [
            f(cosine) for f in (found.similarity.percentile, found.similarity.nearest_percentile, stepped.percentile)
        ]
        assert re.findall(r"(?:[<>] )?[\d.]+%", say(str(cosine))) == [format_percentage(value) for value in values], (
            cosine
        )
    assert "between −1 and 1" in say("7")
    assert tab.complaints == []
    tab.close()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_overflows_the_window_width(tab, width):
    tab.resize(width, 800)
    tab.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert wide(tab) == 0


def test_drawing_follows_the_color_scheme(tab):
    light = drawn(tab)
    tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert drawn(tab) != light


def test_content_is_readable_without_scripts(browser, address, found):
    tab = browser.open(address, scripts=False)
    tab.send("DOM.enable")
    root = tab.send("DOM.getDocument")["root"]["nodeId"]

    def box(selector: str) -> list[float] | None:
        node = tab.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        try:
            return tab.send("DOM.getBoxModel", nodeId=node)["model"]["content"]
        except AssertionError:  # it is not laid out
            return None

    for selector in ("svg.still", ".legend.still", ".plot", "table.worth", "article.card", ".small-cloud", "pre"):
        assert box(selector) is not None, selector
    for selector in ("canvas", ".controls", ".try", "button.copy"):
        assert box(selector) is None, selector
    assert tab.requests == [address]
    assert tab.complaints == []
    tab.close()


def count_pages(tab: Tab) -> int:
    content = tab.pdf()
    assert content.startswith(b"%PDF")
    return len(re.findall(rb"/Type\s*/Page\b", content))


def test_print_takes_at_most_four_pages_with_every_finding(tab, found):
    visible = "[...document.querySelectorAll('{}')].filter(each => each.checkVisibility()).length"
    tab.send("Emulation.setEmulatedMedia", media="print")
    assert tab.run(visible.format("canvas")) == 0
    assert tab.run(visible.format("button")) == 0
    assert tab.run(visible.format(".small-cloud")) == 1
    attention = sum(finding.verdict != "ok" for finding in found.findings)
    assert tab.run(visible.format("article .bounds")) == attention
    assert tab.run(visible.format(".fine .number")) == len(found.findings) - attention
    assert tab.run(visible.format("#notes .facts, #glossary .facts")) == 2
    assert 1 <= count_pages(tab) <= 4


def test_print_loses_no_column(browser, found, tmp_path):
    path = tmp_path / "many.html"
    path.write_text(render_page([dataclasses.replace(found, source="a name " * 9) for _ in range(6)]), encoding="utf-8")
    tab = browser.open(path.as_uri(), width=718)  # A4 without its margins
    tab.send("Emulation.setEmulatedMedia", media="print")
    beyond = (
        "[...document.querySelectorAll('th, td')].filter(each => each.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert tab.run(f"{beyond}.length") == 0
    tab.close()


def test_copy_button_copies_the_command(browser, tab):
    browser.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    tab.click("button.copy")
    tab.run("new Promise(done => setTimeout(done, 100))")
    assert tab.run("document.querySelector('button.copy').textContent") == "Copied"
    assert tab.run("navigator.clipboard.readText()") == tab.run("document.querySelector('.command code').textContent")


def test_two_spaces_rotate_independently(browser, found, tmp_path):
    path = tmp_path / "two.html"
    path.write_text(render_page([found, dataclasses.replace(found, source="b" * 200)], agreement=0.4), encoding="utf-8")
    tab = browser.open(path.as_uri())
    both = "JSON.stringify([...document.querySelectorAll('canvas:not(.ramp):not(button *)')].map(c => c.toDataURL()))"
    tab.finish()
    start = json.loads(tab.run(both))
    assert len(start) == 2
    x, y = tab.middle("canvas.live")
    tab.drag(x, y, x + 90, y)
    after = json.loads(tab.run(both))
    assert after[0] != start[0]
    assert after[1] == start[1]
    for width in (320, 390, 1280):
        tab.resize(width, 800)
        assert wide(tab) == 0, width
    assert tab.complaints == []
    tab.close()


# search, neighbors, pins and selections


@pytest.fixture(scope="module")
def near(tmp_path_factory) -> tuple[Audit, str]:
    """An audit of rows with ids, and the address of its page."""
    generator = np.random.default_rng(3)
    rows = generator.standard_normal((120, 6)) + 6 * np.repeat(np.eye(3, 6), 40, axis=0)
    made = audit(
        rows,
        labels=np.repeat(["ants", "bees", "cats"], 40),
        text=[f"number {i} {EVIL}" for i in range(120)],
        ids=[f"id-{i:03}" for i in range(120)],
    )
    path = tmp_path_factory.mktemp("near") / "report.html"
    path.write_text(render_page([made]), encoding="utf-8")
    return made, path.as_uri()


@pytest.fixture
def cloud(browser, near):
    """Open the page of `near`; at the end, check that it logged no error and ran no injected code."""
    tab = browser.open(near[1])
    tab.finish()
    yield tab
    assert tab.complaints == []
    assert tab.run("window.ran") is None
    tab.close()


def click_point(tab: Tab, point: int) -> None:
    tab.middle("canvas")
    x, y = tab.run(
        f"(r => [r.left + isoscope.clouds[0].screen[3 * {point}], r.top + isoscope.clouds[0].screen[3 * {point} + 1]])"
        "(document.querySelector('canvas').getBoundingClientRect())"
    )
    tab.drag(x, y, x, y)


def picked_rows(tab: Tab) -> list[int]:
    """Return the rows that the panel lists as neighbors."""
    names = tab.run("[...document.querySelectorAll('[data-picked] li button')].map(b => b.textContent)")
    return [int(name.split()[1]) for name in names]


def test_clicked_point_lists_its_nearest_neighbors_in_the_full_space(cloud, near):
    made = near[0]
    rows = made.measured.sample.vectors
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, -2)
    outermost = int(np.argmax(np.linalg.norm(made.pictures.points, axis=1)))
    click_point(cloud, outermost)
    point = cloud.run("isoscope.clouds[0].picked")
    assert point >= 0
    assert picked_rows(cloud) == np.argsort(-cosines[point])[:5].tolist()
    said = cloud.run("document.querySelector('[data-picked]').innerText")
    assert "in the full space, by cosine" in said
    assert f"id id-{point:03}" in said
    assert f"{cosines[point].max():.3f}" in said
    first = picked_rows(cloud)[0]
    cloud.click("[data-picked] li button")
    assert cloud.run("isoscope.clouds[0].picked") == first
    cloud.press("Escape")  # focus is on the page, not on the cloud
    cloud.run("document.querySelector('canvas').focus()")
    cloud.press("Escape")
    assert cloud.run("document.querySelector('[data-picked]').hidden")


def test_pinned_points_stay_when_another_point_is_picked(cloud):
    cloud.run("document.querySelector('canvas').focus()")
    for key in ("n", "Enter"):
        cloud.press(key)
    pinned = cloud.run("isoscope.clouds[0].picked")
    cloud.click("[data-picked] .choices button")
    assert cloud.run("document.activeElement.textContent") == "Unpin"
    cloud.run("document.querySelector('canvas').focus()")
    for key in ("n", "Enter"):
        cloud.press(key)
    assert cloud.run("isoscope.clouds[0].picked") != pinned
    assert picked_rows(cloud)[-1] == pinned
    assert "Pinned points" in cloud.run("document.querySelector('[data-picked]').innerText")


@pytest.mark.parametrize(
    ("words", "rows"),
    [("Number 7 <", [7]), ("BEES", range(40, 80)), ("id-011", [11]), ("row 93", [93]), ("nothing like it", [])],
)
def test_search_finds_texts_labels_ids_and_rows(cloud, words, rows):
    before = inked(cloud)
    cloud.click("[data-find]")
    cloud.type(words)
    assert cloud.run("[...isoscope.clouds[0].matches]") == list(rows)
    said = cloud.run("document.querySelector('[data-matches]').textContent")
    assert said == f"{len(rows)} of 120 points match"
    cloud.press("Enter")
    assert cloud.run("isoscope.clouds[0].chosen") in (rows or [-1])
    assert cloud.run("document.querySelector('[data-take]').hidden") == (not rows)
    cloud.run("(f => { f.value = ''; f.dispatchEvent(new Event('input')); })(document.querySelector('[data-find]'))")
    assert inked(cloud) == before


def test_lasso_selects_points_and_exports_their_ids(browser, cloud, tmp_path):
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), eventsEnabled=True)
    cloud.click("[data-lasso]")
    cloud.middle("canvas")
    frame = "document.querySelector('canvas').getBoundingClientRect()"
    left, top, width, height = cloud.run(f"(r => [r.left, r.top, r.width, r.height])({frame})")
    screen = np.array(cloud.run("[...isoscope.clouds[0].screen]")).reshape(-1, 3)
    corners = [(0.02, 0.02), (0.5, 0.02), (0.5, 0.98), (0.02, 0.98)]
    held = {"button": "left", "buttons": 1, "clickCount": 1}
    for kind, (x, y) in zip(
        ["mousePressed", *["mouseMoved"] * 4, "mouseReleased"], [corners[0], *corners, corners[0]], strict=True
    ):
        cloud.mouse(kind, left + x * width, top + y * height, **held)
    cloud.finish()
    inside = [f"id-{i:03}" for i, (x, y, _) in enumerate(screen) if x < width / 2 and 0.02 < y / height < 0.98]
    assert 0 < len(inside) < 120
    assert cloud.run("document.querySelector('[data-selection] textarea').value").split() == inside
    assert f"{len(inside)} points selected" in cloud.run("document.querySelector('[data-selection]').innerText")
    cloud.click("[data-selection] button")
    browser.wait(lambda: (tmp_path / "ids.txt").exists() or not cloud.finish())
    assert (tmp_path / "ids.txt").read_text().split() == inside
    cloud.click("[data-selection] button", 1)
    assert cloud.run("document.querySelector('[data-selection]').hidden")


def test_points_can_be_selected_with_the_keyboard(cloud):
    cloud.run("document.querySelector('canvas').focus()")
    chosen = []
    for _ in range(2):
        cloud.press("n")
        cloud.press("s")
        chosen.append(cloud.run("isoscope.clouds[0].chosen"))
    assert sorted(cloud.run("[...isoscope.clouds[0].selected]")) == sorted(chosen)
    cloud.press("s")
    assert cloud.run("[...isoscope.clouds[0].selected]") == chosen[:1]


@pytest.mark.parametrize("width", [390, 1280])
def test_names_are_written_into_the_cloud_without_overlap(cloud, width):
    cloud.resize(width, 800)
    cloud.finish()
    written = "isoscope.clouds[0].written"
    texts = cloud.run(f"{written}.map(each => each.text)")
    assert {"ants", "bees", "cats"} <= set(texts)
    overlap = (
        "(a, b) => a !== b && !a.text.startsWith('component') && Math.abs(a.x - b.x) < a.half + b.half - 1 "
        "&& Math.abs(a.y - b.y) < 14"
    )
    assert not cloud.run(f"{written}.some(a => {written}.some(b => ({overlap})(a, b)))")
    cloud.click("[data-names]")
    assert "ants" not in cloud.run(f"{written}.map(each => each.text)")
    assert wide(cloud) == 0


def test_without_measured_neighbors_the_panel_says_that_it_uses_the_picture(browser, near, tmp_path):
    made = near[0]
    bare = dataclasses.replace(made.pictures, neighbors=None, neighbor_scores=None, ids=None)
    path = tmp_path / "bare.html"
    path.write_text(render_page([dataclasses.replace(made, pictures=bare)]), encoding="utf-8")
    tab = browser.open(path.as_uri())
    tab.finish()
    tab.run("isoscope.clouds[0].pick(5)")
    assert "in this picture" in tab.run("document.querySelector('[data-picked]').innerText")
    away = np.linalg.norm(made.pictures.points - made.pictures.points[5], axis=1)
    assert picked_rows(tab) == np.argsort(away)[1:6].tolist()
    tab.run("isoscope.clouds[0].select([3, 1])")
    assert tab.run("document.querySelector('textarea').value").split() == ["1", "3"]
    assert tab.complaints == []
    tab.close()
