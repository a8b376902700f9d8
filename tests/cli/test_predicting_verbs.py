"""``steptime fit`` and ``steptime predict``, as a user calls them."""

import csv
import html
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from program import steptime
from simulated import a_launch, a_store, a_trial, a_worker
from typer.testing import CliRunner

from steptime.catalog.cluster import Cluster, Host
from steptime.catalog.workloads.costs import costs
from steptime.catalog.workloads.table import build_workload
from steptime.cli.app import app
from steptime.cli.demo import unpack
from steptime.cli.predict import _complete_keys
from steptime.document.number_format import seconds
from steptime.scaling import forecast
from steptime.units import format_bit_rate, format_error, format_seconds

SIZES = {"workload": "lenet5", "input_shape": (1, 28, 28), "framework": "pytorch"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of one and two workers at two batches."""
    folder = tmp_path_factory.mktemp("cli") / "results"
    store = a_store(folder)
    store.set_machine({"cpu": "made up", "cores": 8, "gpus": []})
    peak = {"device": "cpu", "precision": "fp32", "threads": 1, "library": "numpy", "version": "2", "size": 1024}
    store.put("peaks", {"peaks": [{**peak, "flop_per_s": [1e9, 2e9, 4e9]}]})
    rng = np.random.default_rng(0)
    for workers in (1, 2):
        for batch in (32, 64):
            strategy = "single" if workers == 1 else "allreduce"
            trial = a_trial(**SIZES, strategy=strategy, workers=workers, batch_per_worker=batch)
            store.add_trial(trial)
            for number in range(4):
                usual = (0.002 + 0.0005 * batch + 0.001 * (workers - 1)) * np.exp(0.01 * rng.standard_normal())
                ends = np.cumsum(usual * np.exp(0.02 * rng.standard_normal(50))).tolist()
                store.append(a_launch(trial, number, workers=[a_worker(ends, rank) for rank in range(workers)]))
    return folder


@pytest.fixture(scope="module")
def profile(results):
    path = results.with_name("profile.json")
    assert CliRunner().invoke(app, ["fit", str(results), "-o", str(path)]).exit_code == 0
    return path


@pytest.fixture(scope="module")
def hosts_profile(tmp_path_factory):
    """Of one worker, and of two on a host each."""
    folder = tmp_path_factory.mktemp("hosts") / "results"
    store = a_store(folder)
    rng = np.random.default_rng(0)
    hosts = {"launcher": "emulated", "hosts": 2, "cluster": Cluster(hosts=(Host(), Host()), worker_hosts=2)}
    for workers, more in ((1, {"strategy": "single"}), (2, {"strategy": "allreduce", **hosts})):
        trial = a_trial(**SIZES, workers=workers, batch_per_worker=64, **more)
        store.add_trial(trial)
        for number in range(4):
            ends = np.cumsum((0.03 + 0.01 * workers) * np.exp(0.02 * rng.standard_normal(50))).tolist()
            store.append(a_launch(trial, number, workers=[a_worker(ends, rank) for rank in range(workers)]))
    path = folder.with_name("profile.json")
    assert CliRunner().invoke(app, ["fit", str(folder), "-o", str(path)]).exit_code == 0
    return path


@pytest.fixture(scope="module")
def of_few_cores(profile):
    """The same on a machine of two cores."""
    data = json.loads(profile.read_text())
    data["machine"]["cores"] = 2
    path = profile.with_name("few-cores.json")
    path.write_text(json.dumps(data))
    return path


def predicted(profile, *arguments, exit_code=0):
    result = CliRunner().invoke(app, ["predict", str(profile), *arguments, "--json"])
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)["predictions"]


def complaint(*arguments) -> str:
    """What the program says, as a user sees it, of what is wrong."""
    result = steptime(*map(str, arguments), cwd=Path.cwd(), check=2)
    assert "Traceback" not in result.stderr
    return result.stderr


def test_fit_prints_held_out_errors_beside_a_null(results, tmp_path):
    result = CliRunner().invoke(app, ["fit", str(results), "-o", str(tmp_path / "p.json")])
    assert "Tested by leaving out" in result.stdout
    assert "best naive" in result.stdout
    assert "pytorch allreduce" in result.stdout


def test_what_fit_ends_with_predicts(results, unpredicted, tmp_path):
    for folder in (results, unpredicted):
        said = CliRunner().invoke(app, ["fit", str(folder), "-o", str(tmp_path / "p.json")]).stdout
        command = shlex.split(said.rpartition("\nNext: ")[2])
        assert command[:2] == ["steptime", "predict"]
        found = CliRunner().invoke(app, [*command[1:], "--json"])
        assert [each["refused"] for each in json.loads(found.stdout)["predictions"]] == [None, None], folder


@pytest.fixture(scope="module")
def unpredicted(tmp_path_factory):
    """A folder of one worker alone, with nothing to hold out."""
    store = a_store(tmp_path_factory.mktemp("alone") / "results")
    trial = a_trial(**SIZES, batch_per_worker=32)
    store.add_trial(trial)
    for number in range(3):
        store.append(
            a_launch(trial, number, workers=[a_worker(np.cumsum(np.full(50, 0.02 + 0.001 * number)).tolist())])
        )
    return store.path


def test_fit_says_where_nothing_was_tested(unpredicted, tmp_path):
    said = CliRunner().invoke(app, ["fit", str(unpredicted), "-o", str(tmp_path / "p.json")]).stdout
    assert said.startswith("1 model fitted to ")
    assert "None was tested: " in said


def test_fit_as_json_has_parameters_and_held_out_points(results, tmp_path):
    result = CliRunner().invoke(app, ["fit", str(results), "-o", str(tmp_path / "p.json"), "--json"])
    found = json.loads(result.stdout)
    group = next(each for each in found["groups"] if each["key"]["strategy"] == "allreduce")
    assert {"value", "low", "high", "how"} == set(group["parameters"]["backward_per_sample_s"])
    assert {"verdict", "predicted", "measured_s", "nulls"} <= set(group["held_out"][0])


def test_fit_writes_beside_the_folder_where_no_file_is_named(results):
    CliRunner().invoke(app, ["fit", str(results)])
    assert results.with_name("results.profile.json").is_file()


def test_json_has_what_is_documented(profile):
    (found,) = predicted(profile, "--workers", "2", "batch_per_worker=32")
    keys = {
        "workers",
        "step_time_s",
        "throughput_samples_per_s",
        "efficiency",
        "phases",
        "dominant_phase",
        "extrapolation",
    }
    assert keys | {"refused"} <= set(found)
    assert set(found["step_time_s"]) == {"value", "low", "high"}
    assert found["refused"] is None
    assert found["step_time_s"]["low"] <= found["step_time_s"]["value"] <= found["step_time_s"]["high"]
    assert found["dominant_phase"] in found["phases"]


def test_flops_and_mfu_are_predicted_by_the_peak_of_the_measured_machine(profile):
    (found,) = predicted(profile, "--workers", "2", "batch_per_worker=32")
    flops = costs(build_workload("lenet5")).model_flops
    rate = found["throughput_samples_per_s"] * flops / 2
    assert found["flop_per_s_per_device"]["value"] == pytest.approx(rate)
    assert found["mfu"]["value"] == pytest.approx(rate / 2e9)
    assert found["mfu"]["low"] == pytest.approx(found["flop_per_s_per_device"]["low"] / 4e9)
    assert (found["peak_source"], found["tokens_per_s"]["value"]) == ("measured", None)
    printed = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2", "batch_per_worker=32"]).stdout
    assert "MFU" in printed


def test_a_measured_step_lies_in_its_interval(profile):
    (found,) = predicted(profile, "--workers", "2", "batch_per_worker=64")
    assert found["step_time_s"]["low"] < 0.035 < found["step_time_s"]["high"]


def test_refused_predictions_have_no_numbers_and_a_reason(profile):
    (found,) = predicted(profile, "--workers", "1024", exit_code=3)
    assert found["step_time_s"] == {"value": None, "low": None, "high": None}
    assert found["throughput_samples_per_s"] is None
    assert "interconnect.bandwidth" in found["refused"]


def test_a_thousand_workers_on_hosts_with_a_link_are_predicted(profile):
    found = predicted(profile, "--workers", "4,8,...,1024", "interconnect.bandwidth=25Gbit/s")
    assert [each["workers"] for each in found] == [2**power for power in range(2, 11)]
    steps = [each["step_time_s"]["value"] for each in found if not each["refused"]]
    assert len(steps) == 9
    widths = [each["step_time_s"]["high"] / each["step_time_s"]["low"] for each in found]
    assert widths[-1] > widths[0]


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_the_table_fits_the_terminal(profile, columns):
    result = CliRunner().invoke(
        app, ["predict", str(profile), "--workers", "1,2,4096", "bucket_mb=1,25"], env={"COLUMNS": columns}
    )
    table = [line for line in result.stdout.splitlines() if not line.startswith(("refused", "note"))]
    assert max(map(len, table)) <= int(columns)
    assert "refused" in result.stdout


@pytest.mark.parametrize("columns", ["60", "80"])
def test_no_cell_of_the_table_is_broken(profile, columns):
    arguments = ["--workers", "1,2", "bucket_mb=1,25", "samples=1000"]
    result = CliRunner().invoke(app, ["predict", str(profile), *arguments], env={"COLUMNS": columns})
    titles = {"bucket_mb,", "workers", "step", "samples/s", "efficiency", "most", "epoch"}
    assert titles <= set(result.stdout.split())
    assert predicted(profile, *arguments)[0]["dominant_phase"] == "backward"
    assert len(re.findall(r"computing \d+ %", result.stdout)) > 1


def test_the_steps_of_one_prediction_are_one_table_at_80_columns(profile):
    result = CliRunner().invoke(app, ["predict", str(profile), "--workers", "1,2"], env={"COLUMNS": "80"})
    (titles,) = [line for line in result.stdout.splitlines() if "step time" in line]
    assert {"samples/s", "efficiency", "most"} <= set(titles.split())


def test_an_epoch_of_minutes_is_in_minutes(profile):
    result = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2", "samples=1000000"])
    assert " min" in result.stdout


@pytest.mark.parametrize("form", ["markdown", "csv", "latex"])
def test_a_prediction_in_another_form_has_its_steps_with_their_intervals(profile, form):
    arguments = ["--workers", "1,2", "batch_per_worker=32"]
    step = predicted(profile, *arguments)[1]["step_time_s"]
    found = CliRunner().invoke(app, ["predict", str(profile), *arguments, "--format", form])

    assert found.exit_code == 0
    assert seconds(step["value"], step["low"], step["high"]).interval in found.stdout


def test_csv_of_a_prediction_has_every_phase_of_the_terminal(profile):
    text = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2", "--format", "csv"]).stdout
    rows = list(csv.DictReader(io.StringIO(text)))

    assert {"step time", "efficiency", "forward", "exposed", "parallel", "MFU"} <= {row["column"] for row in rows}
    assert {row["row"] for row in rows if row["column"] in {"step time", "forward"}} == {"2"}


def test_the_page_of_predictions_begins_with_the_answer_and_shows_the_curve_before_the_table(profile, tmp_path):
    path = tmp_path / "page.html"
    found = CliRunner().invoke(app, ["predict", str(profile), "--workers", "1,2,4", "--html", str(path)])
    page = path.read_text("utf-8")

    assert found.exit_code == 0
    assert page.count(": a step takes ") == 1
    order = ['<div class="answer">', ": a step takes ", "<main>", "Step time against workers", 'class="scroll']
    assert sorted(order, key=page.index) == order
    assert "Efficiency against workers" in page


def test_one_number_of_workers_has_no_curve(profile, tmp_path):
    path = tmp_path / "page.html"
    CliRunner().invoke(app, ["predict", str(profile), "--workers", "2", "--html", str(path)])

    assert "against workers" not in path.read_text("utf-8")


def test_the_answer_is_about_the_most_workers_of_each_change(profile):
    link = ["interconnect.bandwidth=1Gbit/s,25Gbit/s", "workers_per_host=1"]
    _, first, *_ = shown(profile, "--workers", "8,2", *link).splitlines()

    assert re.findall(r"bandwidth=(\w+)/s: (\d+) workers", first) == [("1Gbit", "8"), ("25Gbit", "8")]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_page_of_a_prediction_has_its_tables_and_names_the_command(profile, form, tmp_path):
    page = tmp_path / "page.html"
    found = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2", "--format", form, "--html", str(page)])

    assert found.exit_code == 0
    assert "Predicted steps" in page.read_text()
    assert "Made by steptime" in page.read_text()


def shown(profile, *arguments):
    return CliRunner().invoke(app, ["predict", str(profile), *arguments], env={"COLUMNS": "500"}).stdout


def test_the_first_line_of_an_answer_is_the_layout_that_it_assumes(profile):
    link = ["interconnect.bandwidth=25Gbit/s", "interconnect.delay=5us"]
    text = shown(profile, "--workers", "64", "workers_per_host=2", *link)

    name, first, *_ = text.splitlines()
    assert name.startswith("pytorch allreduce, lenet5")
    assert first.startswith("64 workers on 32 hosts, 2 each; 25 Gbit/s between hosts, delay 5 µs: a step takes ")


def test_the_latency_of_a_link_and_where_it_comes_from_stand_in_the_first_line(profile):
    link = ["--workers", "8", "workers_per_host=2", "interconnect.bandwidth=25Gbit/s"]
    (used,) = (each["link"] for each in predicted(profile, *link))
    _, first, *_ = shown(profile, *link).splitlines()

    assert f"; 25 Gbit/s between hosts, latency {format_seconds(used['latency_s'])} (assumed): a step " in first


def test_a_rate_that_was_not_stated_is_given_with_where_it_comes_from(hosts_profile):
    (used,) = (each["link"] for each in predicted(hosts_profile, "--workers", "4"))
    _, first, *_ = shown(hosts_profile, "--workers", "4").splitlines()

    assert f"{format_bit_rate(8 * used['rate'])} between hosts and latency " in first
    assert used["fitted"] == ("(fitted to the measured steps)" in first)


def test_workers_that_exchange_nothing_have_no_link(profile):
    assert [each["link"] for each in predicted(profile, "--workers", "1")] == [None]


def test_a_layout_that_was_not_stated_and_matters_is_shown_beside_one_worker_on_each_host(profile):
    text = shown(profile, "--workers", "8", "interconnect.bandwidth=25Gbit/s")

    assert (" each (not stated)" in text) == ("With workers_per_host=1, 8 workers take " in text)


def test_hosts_without_workers_mean_one_worker_on_each(profile):
    link = ["hosts=4,8", "interconnect.bandwidth=25Gbit/s"]

    assert [each["workers"] for each in predicted(profile, *link)] == [4, 8]


def test_a_value_that_changes_nothing_is_named(profile):
    assert "note: interconnect.bandwidth=25Gbit/s changes nothing here" in shown(
        profile, "--workers", "1", "interconnect.bandwidth=25Gbit/s"
    )


@pytest.fixture(params=["none", "all", "some", "no-miss"])
def tested(request, profile, tmp_path):
    """A profile whose model missed some of what was left out of its fit, and the sentence about it."""
    data = json.loads(profile.read_text())
    (group,) = (each for each in data["groups"] if each["key"]["strategy"] == "allreduce")
    first, second = group["held_out"]
    for each in (first, second):
        each["measured_s"] = each["predicted"]["value_s"]
    if request.param in ("all", "some"):
        first["measured_s"] = 1.4 * first["predicted"]["high_s"]
    if request.param == "all":
        second["measured_s"] = second["predicted"]["low_s"] / 1.2
    if request.param == "none":
        group["held_out"] = []
    path = tmp_path / "tested.json"
    path.write_text(json.dumps(data))
    return path, {
        "none": ((0, 0, None), "The model was not tested on held-out points."),
        "all": ((2, 2, 1.4), "2 of 2 held-out measurements lay outside this model's interval (by up to 1.4 times)."),
        "some": ((2, 1, 1.4), "1 of 2 held-out measurements lay outside this model's interval (by up to 1.4 times)."),
        "no-miss": ((2, 0, None), "All 2 held-out measurements lay inside this model's interval."),
    }[request.param]


def test_how_a_model_did_on_held_out_points_stands_beside_its_number(tested, tmp_path):
    path, ((points, outside, farthest), sentence) = tested
    page = tmp_path / "page.html"
    (found,) = predicted(path, "--workers", "2", "batch_per_worker=32", "--html", str(page))
    _, first, *_ = shown(path, "--workers", "2", "batch_per_worker=32").splitlines()

    assert re.search(rf": a step takes .*\). {re.escape(sentence)}$", first)
    assert (found["held_out"]["points"], found["held_out"]["outside"]) == (points, outside)
    assert found["held_out"]["farthest"] == (farthest and pytest.approx(farthest))
    answer = page.read_text("utf-8").partition("<main>")[0]
    assert sentence in html.unescape(answer)


def test_a_refusal_is_the_answer_and_stands_before_any_table(profile):
    whole = shown(profile, "--workers", "4096").splitlines()
    assert len(whole) <= 4
    assert whole[1].startswith("Refused: ")
    assert "interconnect.bandwidth" in whole[1]


def test_what_is_refused_of_several_is_part_of_the_answer(profile):
    _, first, *_ = shown(profile, "--workers", "2,2048,4096").splitlines()
    assert re.search(
        r": a step takes .* Refused for 2048 and 4096 workers: 2048 workers .*interconnect.bandwidth", first
    )


@pytest.mark.parametrize(
    ("asked", "refused", "steps"),
    [
        (["device=h200"], "All models: no launch with device cuda", 0),
        (["--workers", "2,8"], "All models, 8 workers: 8 ", 10),
    ],
)
def test_what_is_refused_of_all_models_for_one_reason_is_told_once_and_first(several, asked, refused, steps):
    said = CliRunner().invoke(app, ["predict", str(several), *asked, "--all"], env={"COLUMNS": "500"}).stdout
    title, first, *_ = said.splitlines()
    assert (title, first.strip()[: len(refused)]) == ("Refused", refused)
    assert said.count(refused) == 1
    assert said.count("step time") == steps


def test_a_delay_may_be_given_in_microseconds(profile):
    link = ["--workers", "4", "workers_per_host=1", "interconnect.bandwidth=1Gbit/s"]
    texts = ("5us", "5µs", "5000ns", "0.005ms")
    steps = {predicted(profile, *link, f"interconnect.delay={text}")[0]["step_time_s"]["value"] for text in texts}
    assert max(steps) == pytest.approx(min(steps))


def test_mistakes_are_told_all_at_once_with_their_remedy(profile):
    text = complaint("predict", profile, "--workers", "0,-1", "stratgy=x", "workload=resnet15", "bucket_mb=0")
    assert text.startswith("5 errors")
    assert "did you mean 'strategy'" in text
    assert "did you mean 'resnet152'" in text


def test_a_profile_of_another_schema_is_refused(profile, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**json.loads(profile.read_text()), "schema": 99}))
    text = complaint("predict", other, "--workers", "2")
    assert "99" in text
    assert "steptime fit" in text


def test_a_folder_without_results_cannot_be_fitted(tmp_path):
    assert "not a results folder" in complaint("fit", tmp_path)


@pytest.fixture(scope="module")
def unpredictive(tmp_path_factory):
    """A folder of two workers alone, without a breakdown."""
    folder = tmp_path_factory.mktemp("unpredictive") / "results"
    store = a_store(folder)
    trial = a_trial(**SIZES, strategy="allreduce", workers=2, batch_per_worker=32)
    store.add_trial(trial)
    for number in range(3):
        ends = np.cumsum(np.full(50, 0.02)).tolist()
        store.append(a_launch(trial, number, workers=[a_worker(ends, rank) for rank in range(2)]))
    return folder


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_study_that_predicts_nothing_gets_no_profile(unpredictive, tmp_path, form):
    path = tmp_path / "p.json"
    result = steptime("fit", str(unpredictive), "-o", str(path), *form, cwd=tmp_path, check=2)

    assert not path.exists()
    assert f"no profile is written, for {unpredictive} predicts nothing: computing cannot be told" in " ".join(
        result.stderr.split()
    )
    assert not form or json.loads(result.stdout)["profile"] is None


def test_an_error_beyond_300_percent_is_a_factor():
    assert [format_error(each) for each in (8.13, 300.0, 314.0)] == ["8.1 %", "300.0 %", "4.1x"]


def test_keys_are_completed():
    assert _complete_keys("inter") == ["interconnect.bandwidth=", "interconnect.delay="]


def test_values_are_completed_where_they_have_names():
    assert _complete_keys("strategy=ps_") == ["strategy=ps_sync", "strategy=ps_async"]
    assert _complete_keys("servers=") == []


def test_a_report_stands_beside_the_profile_of_its_folder(results):
    CliRunner().invoke(app, ["fit", str(results)])
    found = json.loads(CliRunner().invoke(app, ["report", str(results), "--json"]).stdout)
    bands = [trial["anomaly"] for trial in found["trials"]]
    assert all({"verdict", "predicted_s", "ratio", "phase"} == set(anomaly_of) for anomaly_of in bands if anomaly_of)
    assert any(bands)
    assert "Expected and measured" in CliRunner().invoke(app, ["report", "--all", str(results)]).stdout


def test_a_report_without_a_profile_has_no_bands(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "copy")
    found = json.loads(CliRunner().invoke(app, ["report", str(copy), "--json"]).stdout)
    assert [trial["anomaly"] for trial in found["trials"]] == [None] * 4


def test_a_report_beside_a_profile_that_cannot_be_read_says_so_and_goes_on(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "copy")
    (tmp_path / "copy.profile.json").write_text("{}")
    result = CliRunner().invoke(app, ["report", str(copy), "--json"])
    assert result.exit_code == 0
    assert "no predictions" in result.stderr


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    """A measured scaling curve with one held-out row, whose forecast is made once and shown in several forms."""
    path = tmp_path_factory.mktemp("curve") / "points.csv"
    path.write_text("workers,step_time_s,role\n1,0.2,fit\n2,0.204,fit\n4,0.21,fit\n8,0.22,holdout\n")
    found, make = {}, forecast.forecast

    def once(curves, workers, shares):
        key = repr((curves, workers, shares))
        if key not in found:
            found[key] = make(curves, workers, shares)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecast, "forecast", once)
        yield path


def test_a_users_own_curve_is_predicted(curve):
    result = CliRunner().invoke(app, ["predict", "--curve", str(curve), "--workers", "16,32", "--json"])
    (found,) = json.loads(result.stdout)["curves"]
    assert [each["workers"] for each in found["predictions"]] == [16, 32]
    assert all(
        each["step_time_s"]["low"] <= each["step_time_s"]["value"] <= each["step_time_s"]["high"]
        for each in found["predictions"]
    )
    assert [each["workers"] for each in found["held_out"]] == [8]


def test_the_knee_of_a_curve_is_printed_and_in_the_json(curve):
    arguments = ["predict", "--curve", str(curve), "--workers", "16,32"]
    assert "efficiency falls below 80 %" in " ".join(CliRunner().invoke(app, arguments).stdout.split())
    (found,) = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["curves"]
    assert [(each["measure"], each["limit"]) for each in found["knees"]] == [
        ("efficiency", 0.8),
        ("efficiency", 0.5),
        ("doubling", 1.5),
    ]


def test_the_knee_of_a_profile_is_of_the_shares_that_were_chosen(profile):
    result = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2", "--knee", "90", "--json"])
    knees = [each["knees"] for each in json.loads(result.stdout)["knees"]]
    assert [[knee["limit"] for knee in found] for found in knees if found] == [[0.9, 1.5]] * sum(map(bool, knees))


def test_a_model_whose_every_step_is_refused_has_no_knee(profile):
    result = CliRunner().invoke(app, ["predict", str(profile), "--workers", "4096", "--json"])
    assert {str(each["knees"]) for each in json.loads(result.stdout)["knees"]} == {"None"}
    shown = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2", "--json"])
    assert any(each["knees"] for each in json.loads(shown.stdout)["knees"])


def test_a_share_that_is_not_a_percentage_is_refused_by_its_name(profile):
    assert "--knee: 'half' is not a share" in complaint("predict", profile, "--knee", "half")


def test_the_page_of_a_curve_begins_with_the_answer_and_shows_measured_steps(curve, tmp_path):
    path = tmp_path / "page.html"
    CliRunner().invoke(app, ["predict", "--curve", str(curve), "--workers", "16,32", "--html", str(path)])
    page = path.read_text("utf-8")

    order = ['<div class="answer">', "With 32 workers the step is ", "<main>", "measured ones as diamonds"]
    assert sorted(order, key=page.index) == order


@pytest.mark.parametrize("columns", ["60", "80"])
def test_the_table_of_a_curve_fits_the_terminal(curve, columns):
    result = CliRunner().invoke(app, ["predict", "--curve", str(curve), "--workers", "16,32"], env={"COLUMNS": columns})
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= int(columns)
    assert {"extrapolation", "predicted", "error"} <= set(result.stdout.split())


def test_a_curve_and_a_profile_contradict_each_other(curve, profile):
    assert "leave out" in complaint("predict", profile, "--curve", curve)


def test_nothing_to_predict_from_is_said_with_both_remedies():
    text = complaint("predict", "--workers", "2")
    assert "steptime fit" in text
    assert "--curve" in text


def test_phases_are_printed(profile):
    result = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2"])

    assert "forward" in result.stdout
    assert "exposed" in result.stdout


def test_how_the_interval_splits_is_printed_with_what_would_narrow_it(profile):
    result = CliRunner().invoke(app, ["predict", str(profile), "--workers", "2"])

    assert "parameters" in result.stdout
    assert "It narrows most by" in " ".join(result.stdout.split())


def test_no_line_of_a_table_is_wider_than_the_terminal(profile):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["predict", str(profile), "--workers", "1,2,4"])

    tables, _, _ = result.stdout.partition("note:")
    assert max(map(len, tables.splitlines())) <= 80


def test_exit_code_3_says_that_every_configuration_was_refused(profile):
    refused = CliRunner().invoke(app, ["predict", str(profile), "--workers", "4096"])

    assert refused.exit_code == 3
    assert "Refused: " in refused.stdout


def test_one_answer_among_refusals_is_a_success(profile):
    assert CliRunner().invoke(app, ["predict", str(profile), "--workers", "2,4096"]).exit_code == 0


def test_microseconds_are_read(profile):
    arguments = ["workers_per_host=1", "interconnect.bandwidth=10Gbit/s", "interconnect.delay=5us"]

    assert predicted(profile, *arguments, "--workers", "2")


def test_json_has_the_shares_of_the_interval(profile):
    (found,) = predicted(profile, "--workers", "2")

    assert sum(found["interval_shares"].values()) == pytest.approx(1.0)
    assert found["narrowed_by"]


def test_nccl_tests_are_shown_with_busbw_of_each_size(results, tmp_path):
    table = tmp_path / "nccl.txt"
    table.write_text("# nThread 1 nGpus 8\n 1048576 262144 float sum -1 37.89 27.67 48.43 0 38.57 27.19 47.58 0\n")

    result = CliRunner().invoke(app, ["fit", str(results), "-o", str(tmp_path / "p"), "--nccl-tests", str(table)])

    assert "busbw" in result.stdout
    assert "1 MiB" in result.stdout
    assert "48" in result.stdout


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """The recorded demo's profile, of nine models."""
    return unpack(tmp_path_factory.mktemp("several")).with_suffix(".profile.json")


def test_several_models_are_predicted_without_the_phases_of_each(several):
    said = CliRunner().invoke(app, ["predict", str(several), "--workers", "2", "--all"]).stdout
    assert said.count("step time") >= 9
    assert "Phases" not in said.splitlines()
    assert "Phases and limits of one: workload=" in said


def titles_of(profile, *asked):
    """Return the framework, strategy and workload of each model that is shown whole, in their order."""
    return re.findall(r"^(\w+) (\w+), (\w+), batch", shown(profile, *asked), re.MULTILINE)


def test_of_many_models_the_first_of_each_workload_is_shown_and_the_others_are_counted(several):
    every, firsts = (titles_of(several, "--workers", "2", *more) for more in (["--all"], []))
    assert firsts == [next(each for each in every if each[2] == name) for name in dict.fromkeys(w for *_, w in every)]
    assert f"Steps of {len(every) - len(firsts)} further models: --all" in shown(several, "--workers", "2")
    assert "further models" not in shown(several, "--workers", "2", "--all")


def test_two_models_are_both_shown(several):
    asked = ["--workers", "2", "framework=pytorch,tensorflow", "strategy=allreduce", "workload=lenet5"]
    assert len(titles_of(several, *asked)) == 2


def test_what_shows_one_model_whole_is_a_command_that_does(several):
    said = " ".join(CliRunner().invoke(app, ["predict", str(several), "--workers", "2"]).stdout.split())
    changes = said.split("Phases and limits of one: ")[1].split()[:3]
    assert "Phases" in CliRunner().invoke(app, ["predict", str(several), *changes]).stdout.splitlines()


@pytest.mark.parametrize("form", ["markdown", "csv", "latex"])
def test_other_forms_have_the_phases_of_all_models(several, form):
    said = CliRunner().invoke(app, ["predict", str(several), "--workers", "2", "--format", form]).stdout
    assert said.count("residual") >= 9


def test_the_page_of_several_models_has_their_phases(several, tmp_path):
    page = tmp_path / "page.html"
    CliRunner().invoke(app, ["predict", str(several), "--workers", "2", "--html", str(page)])
    assert page.read_text("utf-8").count("residual") >= 9


def test_models_of_a_workload_follow_each_other_with_the_fastest_first(several):
    said = CliRunner().invoke(app, ["predict", str(several), "--workers", "2", "--json"], env={"COLUMNS": "500"})
    predictions = json.loads(said.stdout)["predictions"]
    rates = {
        (each["framework"], each["strategy"], each["workload"]): each["throughput_samples_per_s"]
        for each in predictions
    }
    text = shown(several, "--workers", "2", "--all")
    names = re.findall(r"^(\w+) (\w+), (\w+), batch", text, re.MULTILINE)
    assert len(names) == len(rates)
    for workload in {name[2] for name in names}:
        places = [place for place, name in enumerate(names) if name[2] == workload]
        assert places == list(range(places[0], places[-1] + 1))
        shown_rates = [rates[names[place]] for place in places]
        assert shown_rates == sorted(shown_rates, reverse=True)


def test_the_answer_over_several_models_comes_first_and_has_each_workload(several, tmp_path):
    page = tmp_path / "page.html"
    CliRunner().invoke(app, ["predict", str(several), "--workers", "2", "--html", str(page)])
    answer = html.unescape(page.read_text("utf-8").partition("<main>")[0])
    assert re.search(r"gpt2_tiny, 2 workers on one host: tensorflow allreduce \([^)]*\) is predicted", answer)
    assert re.search(r"lenet5, 2 workers on one host: tensorflow allreduce \([^)]*\) is predicted", answer)


def test_more_workers_are_told_over_fewer_with_an_interval_of_their_own(profile):
    text = shown(profile, "--workers", "4,8", "interconnect.bandwidth=25Gbit/s", "workers_per_host=1")
    assert re.search(r"8 workers take 0\.\d+x \(0\.\d+ to 0\.\d+\) the time of 4, for ", text)


def test_json_compares_numbers_of_workers_and_links(profile):
    arguments = ["--workers", "4,8", "interconnect.bandwidth=50Mbit/s,25Gbit/s", "workers_per_host=1", "--json"]
    compared = json.loads(CliRunner().invoke(app, ["predict", str(profile), *arguments]).stdout)["compared"]
    assert [each["workers"] for each in compared] == [[4, 8], [4, 8], [8, 8]]
    assert compared[-1]["time_ratio"]["high"] < 1.0


def test_what_decides_a_step_is_named_with_half_and_twice_of_it(profile):
    text = shown(profile, "--workers", "8", "interconnect.bandwidth=100Mbit/s", "workers_per_host=1")
    assert re.search(
        r"What decides most is the bandwidth between hosts \(stated\): .* with half of it, .* with twice", text
    )


def test_what_decides_is_of_the_change_that_is_named(profile):
    asked = ["--workers", "2,8", "workers_per_host=1"]
    several = shown(profile, *asked, "interconnect.bandwidth=100Mbit/s,1Gbit/s")
    assert "bandwidth=100Mbit/s: What decides most is" in several
    assert "Of 8 workers with " in several
    assert ": What decides most is" not in shown(profile, *asked, "interconnect.bandwidth=1Gbit/s")


@pytest.mark.parametrize("changes", [[], ["strategy=allreduce"], ["strategy=single"], ["batch_per_worker=48"]])
def test_what_is_predicted_by_default_is_answered(of_few_cores, changes):
    found = predicted(of_few_cores, *changes)
    workers = sorted({each["workers"] for each in found})
    assert {each["refused"] for each in found} == {None}
    assert workers == ([1] if changes == ["strategy=single"] else [1, 2, 4])


@pytest.mark.parametrize("changes", [[], ["batch_per_worker=48"], ["interconnect.delay=1ms"]])
def test_what_is_left_out_by_default_is_answered_by_the_command_that_is_named(of_few_cores, changes):
    text = shown(of_few_cores, *changes)
    named = re.search(r"no model answers (.*) workers; on further hosts: steptime (predict .*10Gbit/s)", text)
    assert named is not None
    again = CliRunner().invoke(app, [*shlex.split(named[2]), "--json"])
    answered = [str(each["workers"]) for each in json.loads(again.stdout)["predictions"] if not each["refused"]]
    assert " and ".join(answered) == named[1]


@pytest.mark.parametrize("words", [["--interconnect.bandwidth", "25Gbit/s"], ["--interconnect.bandwidth=25Gbit/s"]])
def test_a_change_that_is_written_as_an_option_is_answered_by_how_it_is_written(profile, words):
    text = complaint("predict", profile, *words)
    assert "a change is written without dashes: interconnect.bandwidth=25Gbit/s" in text


def test_an_option_that_means_no_change_gets_no_other(profile):
    assert "without dashes" not in complaint("predict", profile, "--colour", "red")


def test_a_report_beside_a_profile_ends_with_a_prediction_that_is_answered(results):
    CliRunner().invoke(app, ["fit", str(results)])
    text = CliRunner().invoke(app, ["report", str(results)]).stdout
    command = shlex.split(text[text.index("steptime predict") :].splitlines()[0], comments=True)
    assert CliRunner().invoke(app, command[1:]).exit_code == 0


def test_no_file_is_proposed_for_a_results_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("faster.py").touch()
    assert "did you mean" not in complaint("advise", "fster")
