"""Where the time of a step goes, on the page."""

import re
from itertools import pairwise

import pytest
from ablations import breakdown, cluster, emulated, launch_phases
from summaries import quickstart, ranked, summary, trial
from test_page import drawn_page, page

from steptime.analysis.ablation.form import gap
from steptime.document.charts.phases import gap_chart, phases_chart
from steptime.report.breakdown import breakdown_groups
from steptime.report.breakdown_section import (
    MOST_MAPS,
    MOST_PAIRED,
    MOST_PAIRS,
    chosen_pairs,
    heat_figures,
    phase_figures,
)
from steptime.report.groups import ranked_groups
from steptime.report.trial_names import Names


def groups_of(study):
    return breakdown_groups(ranked_groups(study, Names(study.trials)))


ALONE, TOGETHER = groups_of(launch_phases())


def many(count):
    """A group of so many trials that were broken down."""
    trials = [
        trial(rate=3000.0 - number, id=f"t-{number:08x}", varied_options={"x": number}, breakdown=breakdown())
        for number in range(count)
    ]
    return summary(trials, ranked(*trials))


@pytest.mark.parametrize(
    "words",
    [
        "Where the time of a step goes",
        "10.0 ms <small>9.0 to 11.0</small> <small>24.1 %</small>",
        "worker 1 on host h1 is to blame",
        "Communication that is covered",
        "How long each worker computed, step by step",
        "noisy: CPU used by other processes above 0.1 core (2 of 3 launches)",
        "marking costs at most 1.40 % of a step",
    ],
)
def test_the_page_says(words):
    assert words in drawn_page(launch_phases)


def test_what_nobody_knows_is_a_dash():
    _, part = drawn_page(launch_phases).split('id="breakdown"')
    row = re.search(r"tensorflow allreduce<span.*?</tr>", part, re.DOTALL)[0]
    assert row.count('<td class="number">-</td>') == 6


@pytest.mark.parametrize("forbidden", ["<script", "src=", "url(", "<iframe", 'href="http'])
@pytest.mark.parametrize("study", [launch_phases, emulated])
def test_the_page_still_runs_nothing_and_loads_nothing(study, forbidden):
    assert forbidden not in drawn_page(study)


def test_every_two_trials_of_a_group_can_be_chosen_and_have_a_picture():
    options = re.findall(r'<option class="(c\d+)"', drawn_page(launch_phases))
    pictures = re.findall(r'<figure class="chosen (c\d+)"', drawn_page(launch_phases))
    assert len(options) == 10  # five trials of two workers; two of one worker have one pair, which needs no choice
    assert sorted(pictures) == sorted([*options, "c1"])
    assert all(f"option.{name}:checked" in drawn_page(launch_phases) for name in options)


def test_the_largest_gap_is_the_first_choice():
    assert re.search(
        r'<option class="c1" selected>mxnet ps_async → chainer allreduce: \+38\.0 ms<', drawn_page(launch_phases)
    )


def test_a_page_of_many_trials_has_pairs_of_the_fastest_and_every_other_against_the_fastest():
    (group,) = groups_of(many(20))
    pairs = chosen_pairs(group, 84)
    assert len(pairs) == MOST_PAIRED * (MOST_PAIRED - 1) // 2 + 20 - MOST_PAIRED
    assert {row.row.trial.id for one, other, _ in pairs for row in (one, other)} == {
        row.row.trial.id for row in group.rows
    }


def test_the_pictures_of_a_page_are_small():
    waterfalls = re.findall(r'<figure class="chosen.*?</figure>', drawn_page(launch_phases), re.DOTALL)
    maps = [figure.svg for figure in heat_figures(TOGETHER, MOST_MAPS)]
    assert MOST_PAIRS * max(map(len, waterfalls)) + MOST_MAPS * max(map(len, maps)) < 1_500_000


def test_a_phase_that_only_one_of_two_knows_is_said_to_be_in_the_rest():
    words = "In the rest, because one of both does not know it: input wait, forward, backward"
    assert drawn_page(launch_phases).count(words) == 4  # as many as pairs that tensorflow is one of


def test_a_waterfall_leads_from_the_first_step_to_the_second():
    one, other = (row.breakdown for row in TOGETHER.rows[:2])
    way = gap("a", one, "b", other)
    rows = [{"name": "a", "shown": "", "kind": "step", "value": one.step_s.value_s, "low": None, "high": None}]
    rows += [
        {"name": name, "shown": "", "kind": "phase", "value": part.value_s, "low": None, "high": None}
        for name, part in way.parts.items()
    ]
    rows.append({"name": "b", "shown": "", "kind": "step", "value": other.step_s.value_s, "low": None, "high": None})
    drawn = gap_chart(rows, "s")["data"]["values"]
    assert drawn[-2]["end"] == pytest.approx(drawn[-1]["end"])
    assert all(before["end"] == after["start"] for before, after in pairwise(drawn[:-1]))


def test_stacked_phases_end_at_the_step_where_none_is_negative():
    values = [1.0, 2.0, 4.0]
    parts = [
        {"name": "a", "phase": phase, "value": value, "low": value - 0.5, "high": value + 0.5}
        for phase, value in zip(("forward", "backward", "update"), values, strict=True)
    ]
    titles = {part["phase"]: part["phase"] for part in parts}
    spec = phases_chart([{"name": "a", "shown": "7 s"}], parts, titles, "s")
    bars = next(layer["data"]["values"] for layer in spec["layer"] if layer["mark"]["type"] == "bar")
    assert [(bar["start"], bar["end"]) for bar in bars] == [(0.0, 1.0), (1.0, 3.0), (3.0, 7.0)]
    assert (bars[-1]["from"], bars[-1]["to"]) == (6.5, 7.5)


def test_a_negative_phase_is_drawn_to_the_left_of_zero():
    parts = [
        {"name": "a", "phase": "forward", "value": 3.0, "low": None, "high": None},
        {"name": "a", "phase": "comm_exposed", "value": -1.0, "low": None, "high": None},
    ]
    spec = phases_chart([{"name": "a", "shown": ""}], parts, {"forward": "f", "comm_exposed": "e"}, "s")
    bars = next(layer["data"]["values"] for layer in spec["layer"] if layer["mark"]["type"] == "bar")
    assert (bars[1]["start"], bars[1]["end"]) == (0.0, -1.0)


def test_a_heat_map_names_the_worker_to_blame():
    (figure,) = [found for found in heat_figures(TOGETHER, MOST_MAPS) if found.title.startswith("pytorch allreduce")]
    assert figure.title == "pytorch allreduce: worker 1 on host h1 is to blame"
    assert ">worker 1 (h1), to blame<" in figure.svg


def test_one_worker_has_no_heat_map_and_no_communication():
    assert heat_figures(ALONE, MOST_MAPS) == []
    assert [figure.title for figure in phase_figures(ALONE)] == ["Where the time of a step goes"]


def test_axes_have_titles_with_units():
    svgs = [figure.svg for figure in (*phase_figures(TOGETHER), *heat_figures(TOGETHER, MOST_MAPS)[:1])]
    titles = [">time of a step (ms), from 0<", ">communication of a step (ms), from 0<", ">computation (ms)<"]
    assert all(title in svg for title, svg in zip(titles, svgs, strict=True))


def test_a_study_without_breakdown_and_hosts_has_no_such_parts():
    text = page(quickstart())
    assert 'id="breakdown"' not in text
    assert 'id="hosts"' not in text


@pytest.mark.parametrize(
    "words",
    [
        ">worker-0</td>",
        "100 Mbit/s",
        "not limited",
        "0.500 cores, held back 400 ms",
        "200 µs <small>180 µs to 220 µs</small>",
        "95 Mbit/s <small>85.5 Mbit/s to 105 Mbit/s</small>",
        "14.3 MiB",
    ],
)
def test_the_page_shows_hosts_and_links_beside_what_was_asked_for(words):
    assert words in drawn_page(emulated)


def test_foreign_load_beside_emulated_hosts_is_marked():
    loaded = page(summary([trial(workers=4, cluster=cluster(foreign=0.3))]))
    assert re.search(r'class="bad">.*CPU used by other processes 0.300 .*above 0.1: times are too long', loaded)
