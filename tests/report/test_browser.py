"""The page in a real browser: what only a browser can tell."""

import json

import pytest
from ablations import emulated, launch_phases
from summaries import many, quickstart, summary, sweep, trial
from test_charts import quantiles_of
from trainings import asynchronous, schedules

from browsing import started_browser
from steptime.report.page import page_text
from steptime.report.sections import StudyFindings

pytestmark = pytest.mark.needs("browser")

PHONE, SMALL_PHONE, DESK = 400, 360, 1200
LONG = "an_option_with_a_long_name=and_a_value_that_does_not_end_soon"
STUDIES = {
    "race": quickstart(),
    "forty trials": many(40),
    "sweep": sweep(),
    "broken_down": launch_phases(),
    "emulated hosts": emulated(),
    "schedules": schedules(),
    "asynchronous trainings": asynchronous(),
    "long names": summary(
        [
            trial(
                dataset="/home/lab/" + "pictures-of-birds/" * 8,
                varied_options={"x": LONG},
                flags=["noisy: " + LONG * 3],
            ),
            trial("mxnet", "ps_sync", rate=900.0, varied_options={"y": LONG}),
            trial("chainer", rate=None, status="failed", reason="worker-0: " + "/a/very/long/path" * 20),
        ],
        study="a-study-whose-name-is-far-too-long-for-the-line-of-any-phone-" * 2,
        question="Why?" * 100,
    ),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, study in STUDIES.items():
        (folder / f"{name}.html").write_text(
            page_text(StudyFindings(study, quantiles=quantiles_of(study), study_text="version: 1\n"), "results")
        )
    return folder


@pytest.fixture(scope="module", params=[SMALL_PHONE, PHONE, DESK], ids="{} px".format)
def width(request):
    return request.param


@pytest.fixture(scope="module", params=list(STUDIES))
def opened(request, browser, pages, width):
    """The browser with a page of the study in a window of the width, opened once for all that only look at it."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": width < DESK}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((pages / f"{request.param}.html").as_uri())
    browser.first_titles = browser.execute_script(
        "return [...document.querySelectorAll('section')].filter(e => e.checkVisibility()).map(e => e.id)"
    )
    browser.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
    return browser


def test_only_the_first_section_is_open(opened):
    assert len(opened.first_titles) == 1


def test_no_table_needs_to_be_scrolled_sideways(opened):
    """Rows of a table that a phone has no room for are cards on it."""
    cut = opened.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => [e.getAttribute('aria-label'), e.scrollWidth, e.clientWidth])"
    )

    assert cut == []


def test_no_number_of_a_ranking_is_broken(opened, width):
    if width < DESK:
        pytest.skip("rows are cards there")
    broken = opened.execute_script("""
        const text = document.createRange();
        const lines = e => {
          text.selectNodeContents(e);
          return new Set([...text.getClientRects()].map(r => r.top)).size;
        };
        const numbers = [...document.querySelectorAll('#rankings td.number small')];
        return numbers.filter(e => lines(e) > 1).map(e => e.innerText);
    """)

    assert broken == []


def test_a_row_is_only_as_high_as_what_it_shows(opened):
    """Cells to the right of a phone's edge make no row higher than those that a reader sees."""
    high = opened.execute_script("""
        const text = document.createRange();
        const height = e => { text.selectNodeContents(e); return text.getBoundingClientRect().height; };
        const rows = [...document.querySelectorAll('.scroll:not(.cards) tbody tr')];
        return rows.filter(e => e.checkVisibility()).map(e => {
          const seen = [...e.children].filter(c => c.getBoundingClientRect().left < innerWidth);
          return [e.innerText, e.getBoundingClientRect().height - Math.max(...seen.map(height))];
        }).filter(([, rest]) => rest > 40);
    """)

    assert high == []


def test_the_page_is_no_wider_than_the_window(opened, width):
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_browser_has_nothing_to_complain_about(opened):
    assert opened.get_log("browser") == []


def test_the_page_asks_for_nothing_but_itself(opened):
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]

    assert asked
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []


def test_every_chart_is_visible_and_fits(opened, width):
    sizes = opened.execute_script(
        "return [...document.querySelectorAll('svg')].filter(e => e.checkVisibility()).map(e => {"
        "const r = e.getBoundingClientRect();"
        "return [r.width, r.height, r.left, r.right, getComputedStyle(e).visibility]})"
    )

    assert sizes
    for wide, high, left, right, visibility in sizes:
        assert min(wide, high) > 40
        assert left >= 0
        assert right <= width
        assert visibility == "visible"


def test_letters_of_charts_can_be_read(opened):
    """A chart that is shrunk onto a phone keeps letters of 9 pixels or more."""
    letters = opened.execute_script(
        "return [...document.querySelectorAll('svg text')].filter(e => e.textContent && e.checkVisibility()).map(e =>"
        "parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width"
        " / e.ownerSVGElement.viewBox.baseVal.width)"
    )

    assert min(letters) >= 9.0


def test_words_of_a_chart_do_not_overlap(opened):
    overlaps = opened.execute_script("""
        const found = [];
        for (const svg of document.querySelectorAll('svg')) {
          // Each word of a row is drawn twice, first as a white rim.
          const texts = [...svg.querySelectorAll('text')].filter(e => e.textContent && !e.getAttribute('stroke'));
          const boxes = texts.map(e => [e.textContent, e.getBoundingClientRect()]);
          boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
            const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
            const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
            if (wide > 1 && high > 3) found.push([svg.getAttribute('aria-label'), a, b]);
          }));
        }
        return found;
    """)

    assert overlaps == []


def test_words_of_a_chart_are_inside_it(opened):
    outside = opened.execute_script("""
        return [...document.querySelectorAll('svg text')].filter(e => {
          if (!e.textContent) return false;
          const p = e.getBoundingClientRect(), q = e.ownerSVGElement.getBoundingClientRect();
          return p.left < q.left - 1 || p.right > q.right + 1 || p.top < q.top - 1 || p.bottom > q.bottom + 1;
        }).map(e => e.textContent)
    """)

    assert outside == []


def test_a_wide_table_scrolls_inside_its_box(opened, width):
    boxes = opened.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(e => [e.clientWidth, getComputedStyle(e).overflowX])"
    )

    assert boxes
    assert all(wide <= width and overflow == "auto" for wide, overflow in boxes)


def test_a_page_shows_one_gap_of_a_group_and_another_when_it_is_chosen(browser, pages):
    browser.get((pages / "broken_down.html").as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")
    shown = "return [...document.querySelectorAll('.chooser:has(select) .chosen')].filter(e => e.checkVisibility())"
    name = f"{shown}.map(e => [...e.classList].join(' '))"
    before = browser.execute_script(name)
    browser.execute_script("document.querySelector('.chooser select').selectedIndex = 3")

    assert before == ["chosen c1"]
    assert browser.execute_script(name) == ["chosen c4"]


@pytest.fixture(params=["light", "dark"])
def coloured(request, browser, pages):
    """The browser with a page that has a bit of everything, on a desk, in either of its colours."""
    browser.set_script_timeout(200)  # of a machine that others keep busy
    metrics = {"width": DESK, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    preferred = [{"name": "prefers-color-scheme", "value": request.param}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preferred})
    browser.get((pages / "broken_down.html").as_uri())
    yield browser, request.param
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.timeout(300)
def test_axe_finds_no_violation(coloured):
    """Rules of WCAG 2.2 at levels A and AA and best practices, with everything that is folded opened."""
    axe = pytest.importorskip("axe_core_python.selenium", reason="missing axe-core-python").Axe()
    page, _ = coloured
    page.execute_script("document.querySelectorAll('details').forEach(e => e.open = true)")

    found = axe.run(page)["violations"]

    assert [(each["id"], [node["html"][:120] for node in each["nodes"]][:3]) for each in found] == []


def test_the_page_has_dark_paper_where_that_is_preferred(coloured):
    page, colours = coloured

    paper = page.execute_script("return getComputedStyle(document.body).backgroundColor")

    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 30)"}[colours]


def test_a_phone_shows_the_answer_and_the_first_picture_before_the_table(browser, pages):
    """What a reader of a phone scrolls for comes in the order answer, picture, ranking."""
    metrics = {"width": PHONE, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((pages / "race.html").as_uri())
    answer, picture, table = browser.execute_script("""
        const top = e => e.getBoundingClientRect().top + scrollY;
        const shown = s => [...document.querySelectorAll(s)].find(e => e.checkVisibility());
        return [document.querySelector('.answer').getBoundingClientRect().bottom + scrollY,
                top(shown('#rankings svg')), top(shown('#rankings table'))];
    """)

    assert answer < picture < table
    assert answer < 800
    assert picture < 1000
