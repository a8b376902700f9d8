"""What ``steptime predict`` answers to a decision over several models: the order of these, and what to measure next."""

import html
import json
import re
import shlex
from dataclasses import replace
from functools import cache

import pytest
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.cli.demo import unpack
from steptime.cli.ranked_models import fastest_models
from steptime.fitting.profile import read_profile, write_profile
from steptime.fitting.step_model import INNER, OUTER
from steptime.predict.assumptions import other_layout
from steptime.predict.model_names import model_names
from steptime.predict.next_measurement import UncertainPrediction, _Options, measurements, narrowing
from steptime.predict.predict import BASELINE, predict
from steptime.predict.query import read_queries
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
    arguments = ["predict", str(folder.with_suffix(".profile.json")), "--workers", "16,32", *ASKED, "--all"]
    text = CliRunner().invoke(app, [*arguments, "--html", str(page)], env={"COLUMNS": "120"}).stdout
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
    words = ["predict", str(folder.with_suffix(".profile.json")), "--workers", "2", *changes, "--all"]
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


def models(profile):
    return [each for each in profile.groups if each.parameters and each.key.strategy != "single"]


def uncertain(found):
    inputs = found.inputs
    return UncertainPrediction(inputs.parameters, inputs.model, inputs.extrapolation, 0.05)


@pytest.fixture(scope="module")
def recommended(profile):
    """By links that were timed: each model with every measurement recommended on hosts with another link."""
    return {timed: [*recommendations(profile, timed)] for timed in ((), (INNER, OUTER))}


def recommendations(profile, timed):
    for change in ([], ["batch_per_worker=128"], ["workload=alexnet"]):
        for (found,) in groups_of(profile, [16], "interconnect.bandwidth=10Gbit/s", "workers_per_host=2", *change):
            group = found.inputs.target.exchange or found.inputs.group
            further = replace(found.inputs.extrapolation, bandwidth=2.0, turns=2.0, crosses=True, of_model=0.3)
            everything = replace(uncertain(found), extrapolation=further)
            for each in measurements(everything, group, (found.key, found.deployment), timed):
                yield found, group, each


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """What the program prints of a command's plan, asked once for each command."""
    results = str(tmp_path_factory.mktemp("planned") / "new")

    @cache
    def plan(words):
        named = [results if word == "RESULTS" else word for word in words]
        return CliRunner().invoke(app, [*named, "--dry-run"], env={"COLUMNS": "200"})

    return plan


@pytest.mark.parametrize("timed", [(), (INNER, OUTER)])
def test_what_is_recommended_can_be_run_and_measures_its_model_alone(folder, recommended, planned, timed):
    for found, group, each in recommended[timed]:
        key, words = found.key, shlex.split(each.command)[1:]
        words = [str(folder / "study.yaml") if word == "STUDY" else word for word in words]
        result = planned(tuple(words))
        assert result.exit_code == 0, (each, result.output)
        if words[0] == "net":
            over_hosts = "between hosts" in each.what
            assert ("hosts of 1" in result.stdout, "this host" in result.stdout) == (over_hosts, not over_hosts), each
            operation = "push_pull" if key.strategy == "ps_sync" else "allreduce"
            assert re.search(rf"^{words[1]} .*{operation}", result.stdout, re.MULTILINE), each
        else:
            strategy = "single" if "workers=1" in words else key.strategy
            trials = re.findall(r"^  (pytorch|tensorflow|mxnet|chainer) (\w+)", result.stdout, re.MULTILINE)
            assert (key.framework, strategy) in trials, each
            assert set(trials) <= {(key.framework, strategy), (key.framework, "single")}, each
            workload = key.workload if each.what in {"one worker of that workload", "the batch itself"} else None
            workloads = set(re.findall(r"^(\w+) \(", result.stdout, re.MULTILINE))
            assert workloads == {workload or group.key.workload}, each


@pytest.mark.parametrize("timed", [(), (INNER, OUTER)])
def test_every_recommended_measurement_adds_records(recommended, timed):
    for found, group, each in recommended[timed]:
        words = shlex.split(each.command)
        if words[1] == "net":
            assert (OUTER if "--hosts" in words else INNER) not in timed
            continue
        given = dict(word.split("=", 1) for word in words[3:-2])
        several = "workers" not in given or int(given["workers"]) > 1
        alike = [
            one
            for one in group.measured
            if ("workers" not in given or one.deployment.workers == int(given["workers"]))
            and (not several or one.strategy == found.key.strategy)
            and "hosts" not in given
            and given["workloads"].startswith(f"{{name: {group.key.workload},")
        ]
        batches = [int(batch) for batch in re.findall(r"\d+", given["workloads"].partition("batch_per_worker")[2])]
        launches = [int(given[name]) for name in ("launches.min", "launches.max") if name in given]
        assert (
            not alike
            or any(batch not in {one.deployment.batch for one in alike} for batch in batches)
            or min(launches, default=0) > min(one.launches for one in alike)
            or int(given.get("breakdown.launches", 0)) > min(one.ablation_launches for one in alike)
        ), each


def test_what_is_known_makes_no_interval_wider(recommended):
    for found, _, each in recommended[()]:
        further = replace(found.inputs.extrapolation, bandwidth=2.0, turns=2.0, crosses=True, of_model=0.3)
        (low, high), now = each.with_it.interval, replace(uncertain(found), extrapolation=further).interval
        assert high / low <= 1.25 * now[1] / now[0], each


@pytest.mark.parametrize("workers", [2, 16])
def test_once_it_was_measured_another_measurement_is_recommended(profile, workers):
    changes = ["interconnect.bandwidth=10Gbit/s", "workers_per_host=2"] if workers > 2 else []
    checked = 0
    for (found,) in groups_of(profile, [workers], *changes):
        group, timed = next(each for each in models(profile) if each.key == found.key), []
        if any(each.link and each.link.source == "net" for each in group.measured):
            timed.append(INNER)
        asked, seen, now = (found.key, found.deployment), [], uncertain(found)
        for _ in range(4):
            advice = narrowing(now, group, asked, timed)
            if advice is None:
                break
            assert advice not in seen
            assert re.search(r", at best from .* to .* down to .* to .*: steptime ", advice)
            seen.append(advice)
            checked += 1
            words = shlex.split(advice.partition(": steptime ")[2])
            group = measured_as(group, words, timed)
            most = max(each.deployment.workers for each in group.measured)
            crosses = now.extrapolation.crosses and not any(each.deployment.crosses for each in group.measured)
            nearer = replace(now.extrapolation, workers=max(workers / most, 1.0), crosses=crosses)
            now = replace(now, extrapolation=nearer)
    assert checked >= 4


def measured_as(group, words, timed):
    """Return a group after what was recommended, and add links whose messages were timed."""
    if words[0] == "net":
        timed.append(OUTER if "--hosts" in words else INNER)
        return group
    given = dict(word.split("=", 1) for word in words[2:-2])
    workers = int(given.get("workers", 0))
    batches = [int(batch) for batch in re.findall(r"\d+", given["workloads"].partition("batch_per_worker")[2])]

    def later(each):
        if workers and each.deployment.workers != workers:
            return each
        launches = max(each.launches, int(given.get("launches.min", 0)))
        broken = max(each.ablation_launches, int(given.get("breakdown.launches", 0)))
        return each.model_copy(update={"launches": launches, "ablation_launches": broken})

    first = group.measured[0]
    count = workers or first.deployment.workers
    size = {"workers": count, "batch": batches[-1], "hosts": 2 if "hosts" in given else 1}
    size["workers_per_host"] = 1 if "hosts" in given else count
    new = first.model_copy(update={"deployment": replace(first.deployment, **size)})
    known = any(each.deployment.workers == new.deployment.workers for each in group.measured)
    added = [] if known and batches[-1] == first.deployment.batch and "hosts" not in given else [new]
    return group.model_copy(update={"measured": [*map(later, group.measured), *added]})


def test_a_link_that_was_timed_is_not_timed_again(profile):
    group = next(
        each for each in models(profile) if each.key.framework == "pytorch" and each.key.strategy == "allreduce"
    )
    (found,) = next(
        one
        for one in groups_of(profile, [16], "interconnect.bandwidth=10Gbit/s", "workers_per_host=2")
        if one[0].key == group.key
    )
    assert "steptime net gloo -o" not in (found.narrowing or "")


def test_more_launches_are_asked_of_a_breakdown_that_the_study_has(recommended):
    for _, _, each in recommended[()]:
        assert "breakdown=true" not in each.command or "at two batches" in each.what, each


def test_launches_that_are_asked_for_are_more_than_there_are(profile):
    group = models(profile)[0]
    many = group.model_copy(update={"measured": [each.model_copy(update={"launches": 30}) for each in group.measured]})
    texts = [_Options(each, group.key, group.measured[0].deployment, ())._for("timing")[1] for each in (group, many)]
    assert ["launches.min=10 launches.max=10" in texts[0], "launches.min=60 launches.max=60" in texts[1]] == [
        True,
        True,
    ]


@pytest.mark.parametrize("place", ["beside", "elsewhere"])
def test_the_command_names_the_study_and_the_folder_where_they_are(folder, place, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    path = folder.with_suffix(".profile.json")
    if place == "elsewhere":
        read = read_profile(path)
        path = tmp_path / "of another name.json"
        write_profile(read, path, folder)
    words = ["predict", str(path), "--workers", "2", "--json"]
    found = json.loads(CliRunner().invoke(app, words).stdout)["predictions"]
    commands = [shlex.split(each["narrowed_by"].partition(": steptime ")[2]) for each in found if each["narrowed_by"]]
    assert commands
    for words in commands:
        assert words[-1] == folder.name
        assert words[0] == "net" or words[1] == f"{folder.name}/study.yaml"


def test_without_its_folder_a_profile_names_placeholders(profile, tmp_path):
    path = tmp_path / "alone.json"
    write_profile(profile, path)
    words = ["predict", str(path), "--workers", "2", "--json"]
    found = json.loads(CliRunner().invoke(app, words).stdout)["predictions"]
    assert any("steptime run STUDY " in (each["narrowed_by"] or "") for each in found)
