"""The pictures of the page."""

import re
from functools import cache
from html.parser import HTMLParser

import pytest
from launches import steady
from summaries import many, quickstart, ranked, summary, sweep, trial

from steptime.document.charts.chart import MOST, MOST_ROWS, Marks
from steptime.document.charts.rows import efficiency_lines, throughput_lines
from steptime.report.curves import panel_figures, scaling_panels
from steptime.report.groups import ranked_groups
from steptime.report.ranking import group_figures
from steptime.report.trial_names import Names


def quantiles_of(study):
    """Simulated distributions of all measured trials."""
    return {
        each.id: [(i / 60, float(t)) for i, t in enumerate(sorted(steady(n, each.step_time_s.median)))]
        for n, each in enumerate(study.trials)
        if each.step_time_s.median
    }


def drawn(study):
    """All figures of a study."""
    names = Names(study.trials)
    groups = ranked_groups(study, names)
    ok = [row.trial for group in groups for row in group.rows]
    marks = Marks([(each.framework, names.short(each)) for each in ok])
    figures = [figure for group in groups for figure in group_figures(group, quantiles_of(study), marks)]
    return figures + [figure for panel in scaling_panels(ok, names) for figure in panel_figures(panel, marks)]


@cache
def race():
    """All figures of the quickstart, drawn when a test first asks and not while tests are collected."""
    return drawn(quickstart())


TITLES = {
    "Throughput": ("throughput (samples/s), from 0",),
    "Slowdown vs best": ("slowdown vs best (x",),
    "How step times spread": ("step time (ms)", "share of steps (%)"),
    "Efficiency": ("efficiency (%), from 0", "workers"),
}


def test_the_quickstart_has_a_figure_of_every_title():
    assert {figure.title for figure in race()} == set(TITLES)


@pytest.mark.parametrize("title", TITLES)
def test_axes_have_titles_with_units_and_say_where_they_start(title):
    for figure in race():
        assert figure.title != title or all(f">{axis}" in figure.svg for axis in TITLES[title])


def test_a_chart_says_to_those_who_hear_the_page_what_it_shows():
    for figure in race():
        said = rf'role="img" aria-label="{figure.title}: (lenet5|resnet50) \(.*"><title>{figure.title}: '
        assert re.search(said, figure.svg)


@pytest.mark.parametrize("forbidden", ["<script", "<image", "<foreignObject", "href=", " id=", "url("])
def test_a_chart_runs_nothing_loads_nothing_and_shares_no_names_with_other_charts(forbidden):
    assert not any(forbidden in figure.svg for figure in race())


def test_hostile_names_are_text_in_a_chart():
    hostile = trial(varied_options={"x": "<script>alert(1)</script>"})
    figures = drawn(summary([hostile, trial("mxnet")]))

    assert any("&lt;script&gt;" in figure.svg for figure in figures)
    assert not any("<script" in figure.svg for figure in figures)


class Balance(HTMLParser):
    """Fails on tags that do not close."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, _attributes):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_shortened_numbers_leave_the_picture_whole():
    for figure in race():
        parser = Balance()
        parser.feed(figure.svg)
        assert parser.open == []


def test_a_group_of_one_is_not_compared():
    assert [figure.title for figure in drawn(summary([trial()]))] == ["How step times spread"]


def test_strong_scaling_has_no_efficiency():
    titles = [figure.title for figure in drawn(sweep((2, 4), strong=True))]

    assert "Efficiency" not in titles


def test_a_chart_of_many_trials_shows_the_fastest_and_says_so():
    assert f"Throughput, fastest {MOST_ROWS} of 40" in [figure.title for figure in drawn(many())]


def test_curves_of_many_trials_are_spread_over_charts():
    assert [figure.title for figure in drawn(many())][-2:] == [
        "How step times spread, ranks 1 to 8",
        "How step times spread, ranks 9 to 16",
    ]


def test_a_framework_has_the_same_colour_everywhere():
    marks = Marks([("pytorch", "pytorch single"), ("pytorch", "pytorch allreduce"), ("mxnet", "mxnet single")])

    assert marks.colour("pytorch single") == marks.colour("pytorch allreduce") != marks.colour("mxnet single")


@pytest.mark.parametrize("frameworks", [1, 2, MOST], ids="{} frameworks".format)
@pytest.mark.parametrize("kind", ["shape", "strokeDash"])
def test_series_of_one_chart_can_be_told_apart_without_colours(frameworks, kind):
    series = [(f"framework {i % frameworks}", f"name {i}") for i in range(5 * MOST)]
    marks = Marks(series)
    for start in range(0, len(series), MOST):
        looks = marks.encodings([name for _, name in series[start : start + MOST]], kind)[kind]["scale"]["range"]
        assert len({str(look) for look in looks}) == MOST


def test_more_series_than_can_be_told_apart_are_refused():
    names = [f"name {i}" for i in range(MOST + 1)]

    with pytest.raises(ValueError, match="9 series cannot be distinguished"):
        Marks([("pytorch", name) for name in names]).encodings(names, "color")


def test_a_trial_without_an_interval_is_drawn_as_a_point():
    trials = [trial(width=None), trial("mxnet", "ps_sync", rate=500.0, width=None)]
    figures = drawn(summary(trials, ranked(*trials, width=None)))

    assert "1000 (no interval)" in figures[0].svg


@pytest.mark.parametrize("lines", [efficiency_lines, throughput_lines])
def test_an_axis_ends_near_the_values_where_an_interval_reaches_far_beyond(lines):
    rows = [
        {"name": "a", "workers": workers, "value": 0.9, "low": 0.2, "high": 6.0, "ideal": False} for workers in (1, 2)
    ]
    axes = [layer["encoding"]["y"] for layer in lines(rows, Marks([("a", "a")]))["layer"]]
    for axis in axes:
        assert axis["scale"] == {"domain": [0.0, pytest.approx(1.35)], "nice": False, "clamp": True}
        assert axis["title"].endswith("; intervals reach beyond")
