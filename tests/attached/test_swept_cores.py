"""Sweeps of workers that share cores: what their records show of these, and what forecasts take of them."""

import json
from dataclasses import astuple, replace

import pytest
from stored_processes import BEGIN, COMMAND, MS, process_lines, step, write

from steptime.attached.processor_use import busy_threads
from steptime.curves.curve import Setup
from steptime.document.section import Sentences
from steptime.plain_file import PlainFolder
from steptime.report.sweep import sweep_section
from steptime.results.attached_files import RECORDS, read_attached
from steptime.results.store import Store
from steptime.scaling.crowded_cores import crowded_cores
from steptime.scaling.sweep_answer import SweepAnswer, SweepOptions, sweep_curve
from steptime.scaling.swept_runs import read_runs

STEPS = 40
WEIGHTS = {"kind": "weights", "step": 1, "threads": 2, "device": "cpu"}


def steps_of(step_ms, **more):
    """The steps of a worker, of which all but 1 ms is computing."""
    length, found = round(step_ms * MS), []
    for number in range(STEPS):
        begin = BEGIN + number * length
        passes = [[begin + length // 2, begin + length - MS, begin + length - MS, True]]
        found.append(step(number, begin, {"forward": step_ms - 1.0, "update": 1.0}, backwards=passes, **more))
    return found


def looks(steps, busy, start_up_ms=900.0):
    """Looks at every tenth step, of a process that keeps so many threads busy, beside what its start-up took."""
    found = []
    for number in range(0, STEPS, 10):
        at = steps[number]["begin_ns"]
        taken = start_up_ms * MS + busy * (at - BEGIN)
        found.append({"kind": "memory", "step": number, "at_ns": at, "processor_ns": round(taken)})
    return found


def stored(folder, world, step_ms, *, busy=1.0, machine=None, **more):
    """A run of workers with a step of so many milliseconds, each of which keeps threads busy.

    ``more`` may have ``lines`` in place of looks, and ``apart`` or ``contained``: each on a machine, or in a container.
    """
    steps = steps_of(step_ms)
    own = more.get("lines", looks(steps, busy))
    store = Store.create(folder, study_text="", study_json={"name": "run", "question": ""})
    header = {"command": ["train.py"], "started_at": "2026-01-01T00:00:00+00:00", "boot": "boot-0", "exit_code": 0}
    store.put("attached", {**header, "begin_ns": COMMAND, "end_ns": COMMAND + 9000 * MS, "wall_minus_monotonic_ns": 0})
    boots = [f"boot-{rank if more.get('apart') else 0}" for rank in range(world)]
    processes = [process_lines(rank, world, steps, lines=own, boot=boot) for rank, boot in enumerate(boots)]
    for rank, process in enumerate(processes):
        process[0] |= {"host": f"container-{rank}"} if more.get("contained") else {}
    write(folder, *processes)
    if machine is not None:
        (folder / "machine.json").write_text(json.dumps({"id": "one", **machine}))
    return store


def swept(folder, times, **more):
    """Three runs of each number of workers, whose steps differ by a thousandth."""
    found = []
    for workers, step_ms in times.items():
        lengths = {number: step_ms * (1.0 + 1e-3 * number) for number in (1, 2, 3)}
        stores = [
            (number, stored(folder / f"{workers}-{number}", workers, length, **more))
            for number, length in lengths.items()
        ]
        found.append(read_runs(workers, stores)[0])
    return found


PLANTED = {
    "a thread a worker on two cores, four workers": ({1: 40.0, 2: 41.0}, 1.0, 2, 4, 82.0),
    "a thread a worker on two cores, eight workers": ({1: 40.0, 2: 41.0}, 1.0, 2, 8, 166.0),
    "two threads a worker": ({1: 40.0, 2: 81.0}, 2.0, 2, 4, 165.0),
    "an input process beside each worker": ({1: 40.0, 2: 65.0}, 1.6, 2, 4, 131.0),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_forecast_holds_the_step_of_workers_that_share_cores(tmp_path, name):
    times, busy, cores, asked, truth_ms = PLANTED[name]
    curve = sweep_curve("", swept(tmp_path, times, busy=busy, machine={"cores": cores}), SweepOptions(kind="weak"))
    found = next(point.step_s for point in curve.forecast if point.workers == asked)
    assert found.low < truth_ms / 1e3 < found.high
    assert found.value == pytest.approx(truth_ms / 1e3, rel=0.2)
    assert found.high / found.low < 2.5
    assert f"its {cores} cores are shared" in curve.cores


def test_cores_that_suffice_for_all_workers_that_are_forecast_change_nothing(tmp_path):
    runs = swept(tmp_path, {1: 40.0, 2: 41.0}, machine={"cores": 32})
    curve = sweep_curve("", runs, SweepOptions(kind="weak"))
    without = sweep_curve("", [replace(each, on_cores=None) for each in runs], SweepOptions(kind="weak"))
    assert [astuple(point.step_s) for point in curve.forecast] == [astuple(point.step_s) for point in without.forecast]
    assert curve.cores is None


@pytest.mark.parametrize(("busy", "cores", "is_short"), [(0.5, 32, False), (1.0, 31, True), (2.0, 64, False)])
def test_cores_count_where_the_most_workers_that_are_forecast_want_more(tmp_path, busy, cores, is_short):
    runs = swept(tmp_path, {1: 40.0, 2: 41.0}, busy=busy, machine={"cores": cores})
    assert (crowded_cores(runs, 32).shared is not None) is is_short


def test_workers_each_on_a_machine_share_nothing(tmp_path):
    runs = swept(tmp_path, {1: 40.0, 2: 41.0}, machine={"cores": 1}, apart=True)
    assert [each.on_cores.machines for each in runs] == [1, 2]
    assert crowded_cores(runs, 32).sentence is None


def test_containers_of_one_kernel_share_its_cores(tmp_path):
    runs = swept(tmp_path, {1: 40.0, 2: 41.0}, machine={"cores": 2}, contained=True)
    assert [(each.on_cores.machines, each.on_cores.most) for each in runs] == [(1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("machine", "lines", "missing"),
    [
        (None, {}, "how many cores the machines have"),
        ({"cores": 2}, {"lines": []}, "how many threads a worker keeps busy"),
    ],
    ids=["cores", "threads"],
)
def test_what_is_not_known_of_cores_is_named_and_changes_nothing(tmp_path, machine, lines, missing):
    runs = swept(tmp_path, {1: 40.0, 2: 41.0}, machine=machine, **lines)
    crowded = crowded_cores(runs, 32)
    setup = Setup("own", "", "allreduce", "", "", "", "", None, None, "", "", None, None)
    assert crowded.apply(setup) is setup
    curve = sweep_curve("", runs[:1], SweepOptions(kind="weak")).model_copy(update={"cores": crowded.sentence})
    parts = sweep_section(SweepAnswer(command=["train.py"], curves=[curve], missing=[])).parts
    said = [text for part in parts if isinstance(part, Sentences) for text in part.texts]
    assert f"Cores: {missing} is not known: forecasts take no workers to share cores." in said


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 0.5), (8.0, 2.0), (None, 2.0)])
def test_a_quota_leaves_fewer_cores(tmp_path, quota, cores):
    (runs,) = swept(tmp_path, {1: 40.0}, machine={"cores": 2, "quota_cores": quota})
    assert runs.on_cores.cores == cores


def threads_of(folder, *processes):
    return busy_threads(read_attached(PlainFolder(folder), write(folder, *processes) / RECORDS).processes)


@pytest.mark.parametrize("busy", [0.3, 1.0, 1.7, 8.0])
def test_threads_are_those_that_steps_keep_busy_and_not_those_of_the_start(tmp_path, busy):
    steps = steps_of(40.0)
    assert threads_of(tmp_path, process_lines(0, 1, steps, lines=looks(steps, busy, 9000.0))) == pytest.approx(busy)


@pytest.mark.parametrize("queued", [0.0, 0.5, 0.75])
def test_what_a_process_queues_for_cores_is_not_what_it_keeps_busy(tmp_path, queued):
    """As four workers of a thread each do on two cores, and with other programs beside them."""
    steps = steps_of(40.0)
    own = [
        {**look, "delayed_ns": round(queued * (look["at_ns"] - BEGIN))} for look in looks(steps, 1.0 - queued, 900.0)
    ]
    assert threads_of(tmp_path, process_lines(0, 1, steps, lines=own)) == pytest.approx(1.0)


def test_time_beside_steps_does_not_count(tmp_path):
    """As of an evaluation, which keeps more threads busy."""
    steps = steps_of(40.0)
    own = looks(steps, 1.0)
    late = {"kind": "memory", "step": STEPS, "at_ns": own[-1]["at_ns"] + 60_000 * MS, "processor_ns": 900_000 * MS}
    assert threads_of(tmp_path, process_lines(0, 1, steps, lines=[*own, late])) == pytest.approx(1.0)


@pytest.mark.parametrize(("processor_ms", "threads"), [(2300.0, 0.5), (4600.0, 1.0), (46_000.0, 2.0)])
def test_older_records_have_the_threads_that_compute_and_the_processor_time_of_all(tmp_path, processor_ms, threads):
    lines = process_lines(0, 1, steps_of(40.0), lines=[WEIGHTS])
    lines[-1]["processor_ns"] = round(processor_ms * MS)
    assert threads_of(tmp_path, lines) == pytest.approx(threads)


def test_threads_are_unknown_where_one_process_shows_none(tmp_path):
    steps = steps_of(40.0)
    shown, hidden = process_lines(0, 2, steps, lines=looks(steps, 1.0)), process_lines(1, 2, steps)
    assert threads_of(tmp_path, shown, hidden) is None
