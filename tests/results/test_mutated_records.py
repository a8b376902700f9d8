"""Records of somebody else: whatever a key holds, a verb shows the rest and names the line, or ends in one sentence."""

import json
import re
import shutil
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launch_phases import launch_of
from simulated import a_check, a_launch, a_store, a_trial, a_worker
from typer.testing import CliRunner

from steptime.catalog.cluster import cluster_for
from steptime.cli.app import app
from steptime.errors import SteptimeError
from steptime.results.net_records import NetLaunch, NetSetting, Visit, WorkerVisits

TWO_HOSTS = {
    "framework": "pytorch",
    "workers": 2,
    "hosts": 2,
    "launcher": "emulated",
    "cluster": cluster_for(workers=2, own_servers=0, bandwidth_bits_per_s=1e9, delay_s=0.001),
}
SYNC = a_trial(strategy="allreduce", **TWO_HOSTS)
ASYNC = a_trial(strategy="ps_async", servers=1, server_placement="colocated", **TWO_HOSTS)
VALUES = [
    *(None, True, 0, -1, 3.5, 1e300, -1e300, 10**400, 1e-320, "", "3", "\x1b[2J\x9b\u202e[/x]", "x" * 5000),
    *([], [[]], [None], {}, {"a": 1}, {"": None}, [1, 2, 3], float("nan"), float("inf")),
]
FILES = {
    "launch": f"trials/{SYNC.id}/records.jsonl",
    "stale": f"trials/{ASYNC.id}/records.jsonl",
    "ablation": f"trials/{SYNC.id}/ablation.jsonl",
    "net": "net.jsonl",
    "equivalence": "equivalence.jsonl",
    "machine": "machine.json",
    "verdicts": "verdicts.json",
    "skipped": "skipped.json",
    "datasets": "datasets.json",
    "study": "study.json",
}
VERBS = (["status"], ["status", "--json"], ["report"], ["report", "--json"], ["export", "--to", "csv"])
CLUSTER = {
    "kind": "emulated",
    "delay_s": 0.001,
    "delay_by": "netem",
    "cpu_groups": None,
    "users": True,
    "congestion_control": "reno",
    "hosts": [
        {
            "name": f"h{index}",
            "address": f"10.77.0.{index}",
            "roles": [f"worker-{index}"],
            "cores": [index],
            "bandwidth_bits_per_s": 1e9,
            "burst_bytes": 16375,
            "cpu_quota_cores": None,
            "received_bytes": 540,
            "sent_bytes": 10,
            "throttled_s": 0.1,
        }
        for index in range(2)
    ],
    "paths": [{"source": 0, "target": 1, "alpha_s": 1e-3, "bandwidth_bits_per_s": 9e8, "message_bytes": 1000}],
}


def launches_of(trial, **changes):
    ends = [0.1, 0.2, 0.31, 0.4]
    workers = [replace(a_worker(ends, rank, f"h{rank}"), usage={"cpu_s": 1}, **changes) for rank in range(2)]
    environment = {"name": "pytorch", "kind": "venv", "python": "3.11.2", "packages": {"torch": "2"}}
    return [
        a_launch(trial, number, workers=workers, environment=environment, cluster=CLUSTER, flags=["noisy: x"])
        for number in range(2)
    ]


def ablations():
    for number in range(2):
        launch = launch_of(number, blocks=3, steps=2)
        workers = [
            replace(
                worker,
                host=f"h{worker.rank}",
                clocks=[{"at_s": at_s, "offset_s": 0.0, "rtt_s": 0.0} for at_s in (0.0, 1.0)],
                marks=["forward", "exchange"],
                marked=[[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]],
                transfers=[("bucket 0", 100, 0.1, 0.2), ("bucket 0", 100, 0.4, 0.5)],
                native=[{"timer": {"forward": 0.01}}] * 3,
            )
            for worker in launch.workers
        ]
        yield replace(launch, trial=SYNC.id, workers=workers, cluster=CLUSTER)


def message_launches():
    setting = NetSetting(
        back_end="gloo",
        framework="pytorch",
        strategy="allreduce",
        options={"bucket_mb": 25.0},
        device="cpu",
        operations=("allreduce",),
        sizes=(1024, 65536),
        workers=2,
    )
    visits = [Visit("allreduce", size, 0, [1e-6 * size * end for end in (4, 5, 6, 7)]) for size in setting.sizes]
    workers = [WorkerVisits(rank, "h", visits, 2, 0, {"framework_version": "1"}) for rank in range(2)]
    for number in range(2):
        yield NetLaunch(
            setting=setting,
            launch=number,
            status="ok",
            reason=None,
            started_at="2026-01-01",
            wall_s=1.0,
            commands=[["x"]],
            environment={},
            noise={"steal_share": 0.1},
            alphas_s=[1e-3],
            workers=workers,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A results folder that has every kind of record."""
    claim = {"claim": "c", "source": "s", "ratio": 2.0}
    sides = {"slower": {"frameworks": ["pytorch"]}, "faster": {"frameworks": ["pytorch"], "strategies": None}}
    store = a_store(tmp_path_factory.mktemp("mutants") / "results", published=[{**claim, **sides}])
    for trial in (SYNC, ASYNC):
        store.add_trial(trial)
    for launch in [*launches_of(SYNC), *launches_of(ASYNC, staleness={"0": 3, "1": 1})]:
        store.append(launch)
    for launch in ablations():
        store.append(launch)
    for launch in message_launches():
        store.append_net(launch)
    for _ in range(2):
        store.append_equivalence(a_check(options={"a": 1}, learning_rate=0.1))
    gpus = [{"name": "H100", "memory_bytes": 1e11}]
    store.set_machine({"cpu": "x", "cores": 2, "quota_cores": 1.5, "memory_bytes": 1e10, "gpus": gpus, "os": "y"})
    store.put("verdicts", {ASYNC.id: {"status": "failed", "reason": "not run"}})
    store.put("skipped", {"lines": ["no"]})
    left_out = [{"reason": "format", "kind": "webp", "count": 3}]
    store.put("datasets", {"/pictures": {"samples": 9, "classes": 2, "validation": 0, "left_out": left_out}})
    for file in store.path.rglob("*.jsonl"):
        file.write_text("".join(unsigned(line) for line in file.read_text().splitlines()))
    return store.path


def unsigned(line):
    """Return a line as a version without checksums wrote it: what is wrong with a change is not its checksum."""
    value = json.loads(line)
    del value["checksum"]
    return json.dumps({**value, "schema": 1}, separators=(",", ":")) + "\n"


def places(value, path=()):
    """Yield the path of every key and of every first item."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = mutated(copy[path[0]], path[1:], new)
    return copy


def outcome(verb, folder):
    """Give the command; fail where it ends in anything but a result or a sentence."""
    result = CliRunner().invoke(app, [verb[0], str(folder), *verb[1:]])
    error = result.exception
    if error is not None and not isinstance(error, (SystemExit, SteptimeError)):
        raise error
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", result.output)
    if verb[-1] == "--json" and error is None:
        json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return result.output + str(error or "")


def check(folder, verb, name, draw_path, new):
    file = folder / FILES[name]
    before = file.read_text()
    lines = before.splitlines() if file.suffix == ".jsonl" else [before]
    value = json.loads(lines[-1])
    paths = list(places(value))
    path = paths[draw_path % len(paths)]
    lines[-1] = json.dumps(mutated(value, path, new))
    file.write_text("\n".join(lines) + "\n")
    try:
        said = re.sub(r"\s*\n\s*", " ", outcome(verb, folder))
        assert ("is damaged and was skipped" in said) == (f"{FILES[name]}, line {len(lines)} is damaged" in said)
    finally:
        file.write_text(before)
        shutil.rmtree(folder / "export", ignore_errors=True)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.sampled_from(VERBS), st.sampled_from(sorted(FILES)), st.integers(0, 2000), st.sampled_from(VALUES))
def test_a_record_with_any_value_in_any_key_ends_in_a_result_or_in_one_sentence(folder, verb, name, draw_path, new):
    check(folder, verb, name, draw_path, new)


@pytest.mark.parametrize("name", ["launch", "ablation", "net", "equivalence"])
def test_a_line_of_another_type_is_named_by_every_verb_that_reads_it(folder, name):
    """The text of a number is not a number: the line is left out, and the others count."""
    file = folder / FILES[name]
    before = file.read_text()
    lines = before.splitlines()
    key = "workers" if name == "equivalence" else "wall_s"
    lines[-1] = json.dumps({**json.loads(lines[-1]), key: "2"})
    file.write_text("\n".join(lines) + "\n")
    try:
        said = re.sub(r"\s*\n\s*", " ", outcome(["report"], folder))
        assert f"{FILES[name]}, line 2 is damaged and was skipped ({key}: Input should be a valid" in said
        assert f"line 2 is damaged and was skipped ({key}" in outcome(["report", "--json"], folder)
        if name in ("launch", "ablation"):
            assert f"line 2 is damaged and was skipped ({key}" in outcome(["status"], folder)
    finally:
        file.write_text(before)


def test_a_number_that_json_does_not_know_damages_its_line_alone(folder):
    file = folder / FILES["launch"]
    before = file.read_text()
    file.write_text(before + re.sub('"wall_s":[0-9.]+', '"wall_s":NaN', before.splitlines()[-1]) + "\n")
    try:
        assert "records.jsonl, line 3 is damaged" in outcome(["status"], folder)
    finally:
        file.write_text(before)
