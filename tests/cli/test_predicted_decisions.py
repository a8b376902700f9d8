"""What ``steptime predict`` answers to a decision over several models: the order of these, and what to measure next."""

import html
import json
import re
import shlex
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.cli.demo import unpack
from steptime.cli.ranked_models import fastest_models
from steptime.fitting.profile import read_profile
from steptime.fitting.step_model import INNER, OUTER
from steptime.predict.assumptions import other_layout
from steptime.predict.model_names import model_names
from steptime.predict.next_measurement import _Narrowing, narrowing
from steptime.predict.predict import BASELINE, predict
from steptime.predict.query import read_queries
from steptime.predict.uncertainty import Extrapolation, IntervalShares, UncertainStep
from steptime.results.json_form import Interval

ASKED = ["workload=lenet5", "framework=pytorch,tensorflow,mxnet,chainer", "interconnect.bandwidth=10Gbit/s,25Gbit/s"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The recorded demo, with its profile of nine models beside it."""
    return unpack(tmp_path_factory.mktemp("decisions"))


@pytest.fixture(scope="module")
def profile(folder):
    return read_profile(folder.with_suffix(".profile.json"))


@pytest.fixture(scope="module")
def output(folder, tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "page.html"
    arguments = ["predict", str(folder.with_suffix(".profile.json")), "--workers", "16,32", *ASKED, "--html", str(page)]
    text = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"}).stdout
    return text, html.unescape(page.read_text("utf-8"))


def groups_of(profile, workers, *changes):
    groups = {}
    for each in predict(profile, workers, read_queries(changes, profile)):
        groups.setdefault(each.key, []).append(each)
    return list(groups.values())


def sentences(groups):
    return fastest_models(groups, lambda _: None)


def with_step(predictions, low, high):
    """Return predictions whose steps have other ends."""
    return [replace(each, step_s=Interval((low * high) ** 0.5, low, high)) for each in predictions]


def test_each_number_of_workers_and_each_link_has_its_winner_with_its_layout(output):
    text, page = output
    fastest = " ".join(text.partition("\n\n")[0].split())
    for hosts in (8, 16):
        for rate in (10, 25):
            lead = f"lenet5, {2 * hosts} workers on {hosts} hosts, 2 each (not stated); {rate} Gbit/s between hosts"
            assert fastest.count(lead) == 1
            assert page.partition("<main>")[0].count(lead) == 1


def test_a_winner_that_another_layout_has_is_in_the_line(profile):
    groups = groups_of(profile, [16], "workload=lenet5", "interconnect.bandwidth=10Gbit/s")
    (line,) = fastest_models(groups, lambda each: other_layout(profile, each))
    spread = groups_of(profile, [16], "workload=lenet5", "interconnect.bandwidth=10Gbit/s", "workers_per_host=1")
    winner = re.search(r": (\w+ \w+) ", sentences(spread)[0])[1]
    assert re.search(r": (\w+ \w+) ", line)[1] != winner
    assert f"with workers_per_host=1 it is {winner}" in line


def test_a_stated_layout_has_no_other(profile):
    groups = groups_of(profile, [16], "workload=lenet5", "interconnect.bandwidth=10Gbit/s", "workers_per_host=1")
    (line,) = fastest_models(groups, lambda each: other_layout(profile, each))
    assert "with workers_per_host" not in line


def test_changes_without_effect_share_one_line_that_names_them(profile):
    (line,) = sentences(groups_of(profile, [2], "workload=lenet5", "samples=1000,2000"))
    assert line.startswith("lenet5, 2 workers on one host, samples=1000 or samples=2000: ")


def test_another_layout_names_the_link_it_is_for(output):
    text = " ".join(output[0].split())
    assert len(set(re.findall(r"With bandwidth=(\d+)Gbit/s, workers_per_host=1, the step of 32 workers", text))) == 2
    assert "With workers_per_host=1" not in text


def test_a_winner_that_was_never_tested_is_named_so(profile):
    groups = groups_of(profile, [16], "workload=lenet5", "interconnect.bandwidth=10Gbit/s")
    assert re.search(
        r": mxnet ps_sync \([^)]*not tested on held-out points\) is predicted fastest", sentences(groups)[0]
    )
    for group in groups:
        group[:] = [replace(each, held_out=replace(each.held_out, points=4)) for each in group]
    assert "tested" not in sentences(groups)[0]


@pytest.mark.parametrize(
    ("low", "high", "ranked"), [(0.363, 7.72, False), (0.001, 0.0041, False), (0.001, 0.0039, True)]
)
def test_a_step_whose_interval_claims_no_number_is_not_ranked(profile, low, high, ranked):
    groups = groups_of(profile, [2], "workload=lenet5")
    groups[0][:] = with_step(groups[0], low, high)
    name = f"{groups[0][0].key.framework} {groups[0][0].key.strategy}"
    order, _, left_out = sentences(groups)[0].partition("not ranked: ")
    assert (name in order, f"{name} (" in left_out and "step inconclusive, " in left_out) == (ranked, not ranked)


def test_models_that_no_interval_ranks_have_no_winner(profile):
    groups = [with_step(group, 0.1, 7.0) for group in groups_of(profile, [2], "workload=lenet5")]
    assert re.search(r": no interval supports a rank: .*step inconclusive, 100 ms to 7 s", sentences(groups)[0])
    assert "fastest" not in sentences(groups)[0]


def test_one_model_that_can_be_ranked_is_not_called_the_fastest(profile):
    first, *others = groups_of(profile, [2], "workload=lenet5")
    (line,) = sentences([first, *(with_step(group, 0.1, 7.0) for group in others)])
    assert "alone has an interval that supports a rank" in line
    assert "fastest" not in line


def test_the_column_that_a_sentence_explains_is_there_at_120_columns(output):
    assert output[0].count("most of it") == output[0].count("extrapolation ") > 1


@pytest.mark.parametrize("workload", ["resnet50", "alexnet", "mlp", "gpt2_tiny"])
def test_a_workload_that_was_not_measured_is_called_that_first_with_what_it_is_computed_from(folder, workload):
    words = ["predict", str(folder.with_suffix(".profile.json")), f"workload={workload}", "--workers", "2"]
    lines = CliRunner().invoke(app, words, env={"COLUMNS": "300"}).stdout.splitlines()
    measured = workload == "gpt2_tiny"
    assert ("was not measured: its computing is scaled from that of" in lines[2]) != measured
    notes = [each["notes"] for each in json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["predictions"]]
    assert notes
    assert all(any("was not measured" in note for note in those) != measured for those in notes)


@pytest.mark.parametrize("changes", [["workload=resnet50"], ["workload=resnet50", "framework=pytorch"], []])
def test_no_two_models_have_one_name(folder, profile, changes):
    names = model_names(each.key for group in groups_of(profile, [2], *changes) for each in group)
    assert len(set(names.values())) == len(names)
    words = ["predict", str(folder.with_suffix(".profile.json")), "--workers", "2", *changes]
    lines = CliRunner().invoke(app, words, env={"COLUMNS": "300"}).stdout.splitlines()
    titles = [line for line in lines if re.search(r", batch \d", line)]
    assert len(titles) == len(set(titles)) == len(names)
    assert not [line for line in lines if re.search(r", batch \d+, \d", line)]


def test_models_that_differ_in_anything_are_told_apart(profile):
    key = models(profile)[0].key
    for name, value in {"precision": "bf16", "threads": 3, "cores_per_worker": 2, "dataset": "mnist"}.items():
        names = model_names([key, replace(key, **{name: value})])
        assert len(set(names.values())) == 2
        assert all(name.replace("_", " ") in each for each in names.values())


@pytest.mark.parametrize(
    ("workers", "per_host", "layout"),
    [
        (30, 4, "30 workers on 8 hosts, up to 4 each"),
        (16, 3, "16 workers on 6 hosts, up to 3 each"),
        (16, 4, "16 workers on 4 hosts, 4 each"),
        (3, 2, "3 workers on 2 hosts, up to 2 each"),
    ],
)
def test_hosts_that_are_not_full_hold_up_to_so_many(profile, workers, per_host, layout):
    changes = ["workload=lenet5", "cores_per_host=4", "interconnect.bandwidth=10Gbit/s", f"workers_per_host={per_host}"]
    assert f"lenet5, {layout};" in sentences(groups_of(profile, [workers], *changes))[0]


@pytest.mark.parametrize(("samples", "steps"), [(1797, 2), (1024, 1), (1025, 2), (1, 1), (2048, 2)])
def test_an_epoch_is_of_whole_steps(profile, samples, steps):
    changes = ["workload=lenet5", "interconnect.bandwidth=10Gbit/s", f"samples={samples}"]
    for group in groups_of(profile, [16], *changes):
        (found,) = group
        assert found.epoch_s.value == pytest.approx(steps * found.step_s.value)
        assert found.epoch_s.high == pytest.approx(steps * found.step_s.high)


@pytest.mark.parametrize("strategy", ["ps_sync", "allreduce"])
def test_servers_are_named_and_not_counted_without_a_word(folder, strategy):
    path = str(folder.with_suffix(".profile.json"))
    changes = ["workload=lenet5", "framework=pytorch", f"strategy={strategy}", "interconnect.bandwidth=10Gbit/s"]
    text = " ".join(CliRunner().invoke(app, ["predict", path, "--workers", "1,16", *changes]).stdout.split())
    found = json.loads(CliRunner().invoke(app, ["predict", path, "--workers", "1,16", *changes, "--json"]).stdout)
    servers = strategy == "ps_sync"
    assert found["baseline"] == BASELINE + (", without servers" if servers else "")
    assert (f"relative to {found['baseline']}." in text, "; 1 server; " in text) == (True, servers)
    assert ("Worker hours leave out servers." in text) == servers
    assert (
        ("efficiency is below 80 % from 1 worker" in text) == servers == (found["predictions"][0]["efficiency"] < 0.8)
    )


ELEMENTS = [*OUTER, *INNER, "overlap_efficiency", "persistent", "input_share", "timing", "backward_per_sample_s"]
AXES = ["workers", "bandwidth", "crosses", "batch", "workload", "turns"]


def models(profile):
    return [each for each in profile.groups if each.parameters and each.key.strategy != "single"]


def recommended(profile):
    """Yield each model with every measurement that may be recommended for it on hosts with another link."""
    changes = ["interconnect.bandwidth=10Gbit/s"]
    for (found,) in groups_of(profile, [16], *changes):
        group = next(each for each in models(profile) if each.key == found.key)
        at = _Narrowing(group, found.key, found.deployment)
        step = UncertainStep({}, None, {}, None, IntervalShares(0.0, 1.0, 0.0))
        yield found.key, found.narrowing
        yield found.key, narrowing({}, step, Extrapolation(), group, (found.key, found.deployment))
        for name in ELEMENTS:
            yield found.key, at._for_parameter(name)
        for axis in AXES:
            yield found.key, at._nearer(axis)
        yield found.key, at._where_it_errs()


def test_what_is_recommended_can_be_run_and_measures_its_model(folder, profile, tmp_path):
    planned = {}
    for key, text in recommended(profile):
        words = shlex.split(text.partition(": steptime ")[2])
        words = [str(tmp_path / "new") if word == "RESULTS" else word for word in words]
        words = [str(folder / "study.yaml") if word == "STUDY" else word for word in words]
        if tuple(words) not in planned:
            planned[tuple(words)] = CliRunner().invoke(app, [*words, "--dry-run"], env={"COLUMNS": "200"})
        result = planned[tuple(words)]
        assert result.exit_code == 0, (text, result.output)
        if words[0] == "net":
            over_hosts = "between hosts" in text
            assert ("hosts of 1" in result.stdout, "this host" in result.stdout) == (over_hosts, not over_hosts), text
            operation = "push_pull" if key.strategy == "ps_sync" else "allreduce"
            assert re.search(rf"^{words[1]} .*{operation}", result.stdout, re.MULTILINE), text
        else:
            strategy = "single" if "workers=1" in words else key.strategy
            assert re.search(rf"^  {key.framework} {strategy}\b", result.stdout, re.MULTILINE), text
            assert re.search(rf"^{key.workload} \(", result.stdout, re.MULTILINE), text


def test_more_launches_are_asked_of_a_breakdown_that_the_study_has(profile):
    for key, text in recommended(profile):
        assert "breakdown=true" not in text or "at two batches" in text, (key, text)


def test_launches_that_are_asked_for_are_more_than_there_are(profile):
    group = models(profile)[0]
    many = group.model_copy(update={"measured": [each.model_copy(update={"launches": 30}) for each in group.measured]})
    texts = [
        _Narrowing(each, group.key, group.measured[0].deployment)._for_parameter("timing") for each in (group, many)
    ]
    assert ["launches.min=10 launches.max=10" in texts[0], "launches.min=60 launches.max=60" in texts[1]] == [
        True,
        True,
    ]
