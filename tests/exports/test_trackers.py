"""An attached run in OpenTelemetry, MLflow, Weights & Biases, TensorBoard and Prometheus, read back."""

import html
import itertools
import json
import math
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen

import markdown
import pytest
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.exports.trackers.tracked_run import full_address, masked, tracked_run

sys.path.insert(0, str(Path(__file__).parents[1] / "attached"))
from stored_processes import COMMAND, MS, ddp_steps, process_lines, write

from steptime.results.store import Store

pytestmark = pytest.mark.filterwarnings("default")  # of libraries that are not ours

STEPS, SLOW_STEP, STEP_S, SLOW_S = 150, 77, 0.043, 1.040
STARTED_S = 1_795_737_600
LONGEST = "steptime/step_s/longest"


class Collector(BaseHTTPRequestHandler):
    """A receiver of OTLP and a Pushgateway: it keeps what it is sent, and returns the latter to who scrapes it."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.server.kept["/metrics/job/steptime/run/run"])

    def do_POST(self):
        self.server.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def do_PUT(self):
        self.do_POST()

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def collected():
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        server.kept = {}
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})


def attached_folder(folder):
    """Return the folder of a DDP job of two ranks; rank 0 is slow in one step, rank 1 a little in all others."""
    store = Store.create(folder, study_text="", study_json={"name": "attached"})
    steps = [ddp_steps(rank, lambda number: [1000.0 * (number == SLOW_STEP), 3.0], steps=STEPS) for rank in range(2)]
    write(folder, *(process_lines(rank, 2, own) for rank, own in enumerate(steps)))
    header = {"command": ["torchrun", "train.py"], "started_at": "2026-11-27T00:00:00+00:00", "boot": "boot-0"}
    times = {"begin_ns": COMMAND, "end_ns": COMMAND + 20_000 * MS, "wall_minus_monotonic_ns": 0, "exit_code": 0}
    store.put("attached", header | times)
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory, collected):
    """Return the folder of a run that was written to all places, two of them twice."""
    folder = attached_folder(tmp_path_factory.mktemp("trackers") / "run")
    address = f"127.0.0.1:{collected.server_port}"
    places = [f"mlflow=sqlite:///{folder}/mlflow.db", "wandb", "tensorboard", "tensorboard"]
    places += ["prometheus", f"prometheus={address}", f"prometheus={folder.parent}", f"otel={address}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_DIR", str(folder.parent))
        patch.setenv("MLFLOW_EXPERIMENT_NAME", "speed")
        done = ask("report", folder, *(word for place in places for word in ("--to", place)))
    assert done.exit_code == 0, done.output
    assert done.stderr.count("tensorboard --logdir") == 2
    return folder


@pytest.fixture(scope="module")
def document(written):
    return json.loads(ask("report", written, "--json").stdout)["attached"]


def test_windows_hold_every_step_once(document):
    windows = document["windows"]
    assert sum(window["steps"] for window in windows) == document["steps"]
    assert all(before["last_step"] < after["first_step"] for before, after in itertools.pairwise(windows))


def test_a_window_is_as_long_as_its_parts(document):
    for window in document["windows"]:
        assert sum(window["parts_s"].values()) == pytest.approx(window["mean_s"]["value"])


def test_windows_end_one_after_the_other_within_the_command(document):
    ends = [window["end_s"] for window in document["windows"]]
    assert ends == sorted(ends)
    assert 3.0 < ends[0] < ends[-1] < document["wall_s"]


def test_the_histogram_counts_every_step_of_every_rank(document):
    lengths = document["histogram"]
    assert [sum(counts) for counts in lengths["counts"]] == [document["steps"]] * 2
    assert lengths["counts"][0][lengths["bounds_s"].index(2.0)] == 1
    assert lengths["sums_s"][0] == pytest.approx(document["step_s"]["value"] * document["steps"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_what_is_not_a_number_is_left_out_of_a_run(document, value):
    window = {**document["windows"][0], "p90_s": value, "mean_s": {"value": 0.1, "low": value, "high": value}}
    run = tracked_run({**document, "windows": [window, *document["windows"][1:]]}, "run", "page")
    assert all(math.isfinite(each.seconds) for each in run.values)
    kept = {each.statistic for each in run.values if each.scope == "window" and each.step == window["last_step"]}
    assert not {"p90", "low", "high"} & kept
    assert {"mean", "median"} <= kept


def test_a_gap_has_a_name_that_every_place_takes(document):
    parts = {"update>input": 0.1, "at /a b:3 été": 0.2}
    window = {**document["windows"][0], "parts_s": parts}
    names = {value.name for value in tracked_run({**document, "windows": [window]}, "run", "page").values}
    assert "steptime/within_step_s/update_to_input/mean" in names
    assert all(" " not in name and ":" not in name and ">" not in name for name in names)


@pytest.fixture(scope="module")
def events(written):
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    return EventAccumulator(str(written / "tensorboard" / "steptime-run"), {"tensors": 0}).Reload()


@pytest.mark.parametrize(
    "words", ["train.py:8 <module>", "a * b * c", "my_own_file.py", r"C:\data", "a `b` & [c](d)", "<img src=x>"]
)
def test_a_finding_is_shown_word_by_word_where_markdown_is_rendered(document, words):
    about = {**document["findings"][0], "sentence": words}
    run = tracked_run({**document, "findings": [about]}, "run", "page")
    item = re.search("<li>(.*)</li>", markdown.markdown(run.text))
    assert html.unescape(item[1]) == words


def test_places_that_sort_names_show_curves_first_and_steps_before_their_parts(document):
    names = sorted({value.name for value in tracked_run(document, "run", "page").values})
    kinds = [kind for kind, _ in itertools.groupby(name.split("/")[:2] for name in names)]
    assert kinds == [[scope, what] for scope in ("steptime", "steptime_run") for what in ("step_s", "within_step_s")]


def test_tensorboard_shows_the_one_slow_step_at_its_number(events):
    from tensorboard.util.tensor_util import make_ndarray

    shown = {event.step: float(make_ndarray(event.tensor_proto)) for event in events.Tensors(LONGEST)}
    assert shown[SLOW_STEP] == pytest.approx(SLOW_S)
    assert max(shown.values()) == shown[SLOW_STEP]


def test_tensorboard_shows_a_run_once_that_was_written_twice(events, written):
    assert len(list((written / "tensorboard" / "steptime-run").iterdir())) == 2
    assert len(events.Tensors("steptime_run/step_s/mean")) == 1
    assert len({event.step for event in events.Tensors(LONGEST)}) == len(events.Tensors(LONGEST))


def test_tensorboard_has_the_findings_and_the_page_as_text(events, document, written):
    text = events.Tensors("steptime/findings")[0].tensor_proto.string_val[0].decode()
    assert all(finding["sentence"] in text for finding in document["findings"])
    assert f"Page: {written}" in text


def test_what_another_program_wrote_to_a_folder_of_tensorboard_is_kept(written, tmp_path):
    own = tmp_path / "events.out.tfevents.1.mine"
    own.write_bytes(b"mine")
    assert ask("report", written, "--to", f"tensorboard={tmp_path}").exit_code == 0
    assert own.read_bytes() == b"mine"
    assert [place.name for place in tmp_path.iterdir() if place.is_dir()] == ["steptime-run"]


@pytest.fixture(scope="module")
def of_mlflow(written):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{written}/mlflow.db")
    experiment = client.get_experiment_by_name("speed")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def test_mlflow_has_the_one_slow_step_at_its_number(of_mlflow):
    client, run = of_mlflow
    history = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, LONGEST)}
    assert history[SLOW_STEP] == pytest.approx(SLOW_S)
    assert max(history.values()) < 2.0


def test_mlflow_has_the_step_with_its_interval_and_its_ranks(of_mlflow, document):
    metrics = of_mlflow[1].data.metrics
    for bound, key in (("mean", "value"), ("low", "low"), ("high", "high")):
        assert metrics[f"steptime_run/step_s/{bound}"] == pytest.approx(document["step_s"][key])
    assert {
        "steptime_run/within_step_s/sync_wait/rank_0",
        "steptime_run/within_step_s/sync_wait/rank_1",
    } <= metrics.keys()


def test_mlflow_has_the_findings_as_tags_and_the_times_of_the_run(of_mlflow, document):
    run = of_mlflow[1]
    sentences = {value for name, value in run.data.tags.items() if name.startswith("steptime.finding.")}
    assert sentences == {finding["sentence"] for finding in document["findings"]}
    assert (run.info.start_time, run.info.end_time) == (STARTED_S * 1000, (STARTED_S + 20) * 1000)


def records_of(path):
    """Yield the records of W&B's file, a log as LevelDB's of its own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if kind:
            parts += data[place + 7 : place + 7 + length]
            place += 7 + length
        if kind in {1, 4}:
            yield Record.FromString(parts)
            parts = b""
        if not kind or 32_768 - place % 32_768 < 7:
            place += 32_768 - place % 32_768


@pytest.fixture(scope="module")
def of_wandb(written):
    (path,) = written.parent.glob("wandb/offline-run-*/*.wandb")
    return list(records_of(path))


def test_wandb_has_the_one_slow_step_on_the_axis_of_steps(of_wandb):
    rows = [
        {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in of_wandb
        if record.WhichOneof("record_type") == "history"
    ]
    shown = {row["steptime_step"]: row[LONGEST] for row in rows if LONGEST in row}
    assert shown[SLOW_STEP] == pytest.approx(SLOW_S)
    assert [row["steptime_step"] for row in rows] == sorted({row["steptime_step"] for row in rows})
    metrics = {record.metric.glob_name: record.metric.step_metric for record in of_wandb if record.HasField("metric")}
    assert metrics["steptime/*"] == "steptime_step"


def test_wandb_has_the_findings_and_ends(of_wandb, document):
    (run,) = (record.run for record in of_wandb if record.WhichOneof("record_type") == "run")
    assert all(finding["sentence"] in run.notes for finding in document["findings"])
    assert [record.exit.exit_code for record in of_wandb if record.WhichOneof("record_type") == "exit"] == [0]


@pytest.fixture(scope="module")
def samples(written):
    from prometheus_client.parser import text_string_to_metric_families

    text = (written / "metrics.prom").read_text()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def test_prometheus_counts_the_steps_of_each_rank_by_their_length(samples, document):
    slow = {sample.labels["rank"]: sample.value for sample in samples if sample.labels.get("le") == "1.0"}
    whole = {sample.labels["rank"]: sample.value for sample in samples if sample.name == "steptime_step_seconds_count"}
    assert {rank: whole[rank] - slow[rank] for rank in whole} == {"0": 1.0, "1": 1.0}
    assert set(whole.values()) == {document["steps"]}


def test_prometheus_has_the_findings_as_labels(samples, document):
    found = {sample.labels["sentence"] for sample in samples if sample.name == "steptime_finding_info"}
    assert found == {finding["sentence"] for finding in document["findings"]}


def test_prometheus_is_given_finite_numbers_alone(samples):
    assert all(math.isfinite(sample.value) for sample in samples)


def test_a_folder_of_prometheus_holds_a_file_of_the_run_that_node_exporter_reads(written):
    text = (written.parent / "steptime-run.prom").read_bytes()
    assert text == (written / "metrics.prom").read_bytes()


def test_a_pushgateway_is_sent_the_same_text(written, collected):
    assert collected.kept["/metrics/job/steptime/run/run"] == (written / "metrics.prom").read_bytes()


@pytest.mark.needs("prometheus")
def test_prometheus_itself_scrapes_the_steps_and_the_findings(written, collected, document, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    target = f"{{static_configs: [{{targets: ['127.0.0.1:{collected.server_port}']}}], job_name: here}}"
    (tmp_path / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: [{target}]\n")
    words = [f"--config.file={tmp_path}/prometheus.yml", f"--web.listen-address={address}"]
    with subprocess.Popen(
        ["prometheus", *words, f"--storage.tsdb.path={tmp_path}/data"], stderr=subprocess.PIPE
    ) as run:
        try:
            counted = asked_of_prometheus(address, "steptime_step_seconds_count")
            named = asked_of_prometheus(address, "steptime_finding_info")
        finally:
            run.terminate()
            errors = run.communicate()[1].decode()
    assert {row["metric"]["rank"]: float(row["value"][1]) for row in counted} == dict.fromkeys("01", document["steps"])
    assert {row["metric"]["sentence"] for row in named} == {finding["sentence"] for finding in document["findings"]}
    assert "Error on ingesting" not in errors


def asked_of_prometheus(address, query):
    """Return what a Prometheus has of a metric, as soon as it has scraped it."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://{address}/api/v1/query?query={query}") as answer:
                if rows := json.load(answer)["data"]["result"]:
                    return rows
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(query)


@pytest.mark.parametrize(
    ("variables", "written_to"),
    [
        ({"ID": "1"}, "speed"),
        ({"ID": "0"}, "Default"),
        ({"NAME": "speed", "ID": "1"}, "speed"),
        ({"NAME": "new"}, "new"),
        ({}, "steptime"),
    ],
    ids=["number", "number 0", "both", "a new name", "none"],
)
def test_mlflow_writes_to_the_experiment_that_its_variables_ask_for(
    written, tmp_path, monkeypatch, variables, written_to
):
    shutil.copy(written / "mlflow.db", tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(f"MLFLOW_EXPERIMENT_{name}", value)
    done = ask("report", written, "--to", f"mlflow=sqlite:///{tmp_path}/mlflow.db")
    assert f"of experiment {written_to} at sqlite" in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:secret@host:1/a", "http://me:***@host:1/a"),
        (
            "run 1 at postgresql+psycopg://me:se@c:ret@db/runs and more",
            "run 1 at postgresql+psycopg://me:***@db/runs and more",
        ),
        ("--to https://:secret@h", "--to https://:***@h"),
        ("http://host:9091/a@b", "http://host:9091/a@b"),
        ("http://me@host:1", "http://me@host:1"),
    ],
)
def test_passwords_of_addresses_are_not_shown(text, shown):
    assert masked(text) == shown


@pytest.mark.parametrize("place", ["otel", "mlflow", "prometheus"])
def test_a_tracker_that_fails_does_not_show_the_password_of_its_address(written, monkeypatch, place):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    done = ask("report", written, "--to", f"{place}=http://me:hunter2@127.0.0.1:9/a")
    assert "hunter2" not in done.output + done.stderr + str(done.exception)
    assert str(done.exception).startswith(f"{place}: ")


@pytest.mark.parametrize("target", ["localhost:9091", "10.0.0.1:80/push", "[::1]:9091", "gate-way.example.org:1"])
def test_a_host_and_port_is_an_address(target):
    assert full_address(target) == f"http://{target}"


@pytest.mark.parametrize(
    "target",
    [
        "https://host:1",
        "runs/host:9091",
        "./host:9091",
        "sqlite:///host:9091/a.db",
        "metrics.prom",
        "a:b",
        "databricks://p:1",
    ],
)
def test_a_path_or_an_address_with_its_scheme_stays(target):
    assert full_address(target) == target


PANELS = json.loads((Path(__file__).parents[2] / "docs" / "grafana.json").read_text())["panels"]
SELECTOR = re.compile(r"(steptime_\w+)\{([^}]*)\}")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_of_the_dashboard_asks_for_what_prometheus_has(panel, samples):
    for target in panel["targets"]:
        ((metric, condition),) = SELECTOR.findall(target["expr"])
        conditions = dict(re.findall(r'(\w+)=~?"([^"]*)"', condition))
        assert conditions.pop("run") == "$run"
        asked = [sample.labels for sample in samples if sample.name == metric]
        assert asked
        for label, values in conditions.items():
            assert set(values.split("|")) <= {labels[label] for labels in asked}
        shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
        assert set(shown) | set(re.findall(r"by \((\w+)\)", target["expr"])) <= asked[0].keys()


def test_a_metric_that_prometheus_has_is_in_a_panel(samples):
    asked = {name for panel in PANELS for target in panel["targets"] for name, _ in SELECTOR.findall(target["expr"])}
    assert {sample.name.removesuffix("_count").removesuffix("_sum") for sample in samples} == {
        *asked,
        "steptime_step_seconds",
    }


@pytest.fixture(scope="module")
def metrics(written, collected):
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    (resource,) = ExportMetricsServiceRequest.FromString(collected.kept["/v1/metrics"]).resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def test_a_collector_is_sent_the_histogram_with_buckets_in_seconds(metrics, document):
    points = metrics["steptime.step.duration"].histogram.data_points
    assert metrics["steptime.step.duration"].unit == "s"
    assert [list(point.bucket_counts) for point in points] == document["histogram"]["counts"]
    assert [point.sum for point in points] == pytest.approx(document["histogram"]["sums_s"])


def test_a_collector_is_sent_a_counter_of_steps_at_the_end_of_the_run(metrics, document):
    steps = metrics["steptime.steps"].sum
    assert steps.is_monotonic
    assert [(point.as_int, point.time_unix_nano) for point in steps.data_points] == [
        (document["steps"], (STARTED_S + 20) * 10**9)
    ] * 2


def test_a_collector_is_sent_the_findings_as_events_of_a_span(written, collected, document):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    (resource,) = ExportTraceServiceRequest.FromString(collected.kept["/v1/traces"]).resource_spans
    (span,) = resource.scope_spans[0].spans
    assert [event.name for event in span.events] == [finding["kind"] for finding in document["findings"]]
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (STARTED_S * 10**9, (STARTED_S + 20) * 10**9)
    pages = [about.value.string_value for about in resource.resource.attributes if about.key == "steptime.page"]
    assert pages == [str(written)]


def test_a_tracker_that_fails_is_named_and_the_others_are_written(written, tmp_path):
    places = (f"prometheus={written}/attached.json/x", f"prometheus={tmp_path}/metrics.prom")
    done = ask("report", written, "--to", places[0], "--to", places[1])
    assert str(done.exception).startswith("prometheus: ")
    assert len(str(done.exception).splitlines()) == 1
    assert (tmp_path / "metrics.prom").read_text().startswith("# HELP steptime_run_info")


def test_a_tracker_whose_library_is_absent_is_named_with_the_command_that_installs_it(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "pip install 'steptime[wandb]'" in str(ask("report", written, "--to", "wandb").exception)


def test_a_study_is_not_written_to_trackers(tmp_path):
    Store.create(tmp_path / "study", study_text="", study_json={"name": "study"})
    said = str(ask("report", tmp_path / "study", "--to", "mlflow").exception)
    assert said == f"--to mlflow needs the results of steptime attach; {tmp_path}/study has a study"
