"""What the GPUs of an attached run did: by lines that are made up, and by a run beside a driver that is made up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from program import PROGRAM
from stored_processes import BEGIN, MS, found_in, process_lines, step, write

from steptime.attached import gpus
from steptime.execution import gpu_watch
from steptime.report.attached import attached_section, run_notes
from steptime.results.gpu_windows import RECORDS
from steptime.results.gpus import GpuState

GIB = 2**30
DRIVER = Path(__file__).parents[1] / "fake_driver"
STEPS = 40
OWN = {"pid": 100, "whose": "own", "name": "python", "memory": 30 * GIB, "looks": 20}


def window(number: int = 0, **more):
    """Return the line of a stretch of 1 s, of which the first begins with the steps."""
    begin = BEGIN + number * 1000 * MS
    line = {
        "host": "host-boot-0",
        "boot": "boot-0",
        "begin_ns": begin,
        "end_ns": begin + 1000 * MS,
        "index": 0,
        "looks": 20,
        "name": "NVIDIA H100 80GB HBM3",
        "busy": 0.83,
        "power_w": 412.0,
        "limit_w": 700.0,
        "sm_hz": 1.6e9,
        "highest_sm_hz": 1.98e9,
        "held_looks": 0,
        "held_by": {},
        "used": 31 * GIB,
        "memory": 80 * GIB,
        "processes": [OWN],
    }
    return {**line, **more}


def run_with(folder: Path, *lines, world: int = 1, **header):
    """Return the run of a script of 40 steps of 50 ms with these lines about GPUs."""
    steps = [step(number, BEGIN + number * 50 * MS, {"input": 10, "forward": 40}) for number in range(STEPS)]
    write(folder, *(process_lines(rank, world, steps) for rank in range(world)))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / RECORDS / "gpus-host-1.txt").write_text(text + '{"cut')
    return found_in(folder, 10_000, **header)


def test_use_power_clock_and_memory_are_means_over_the_time_of_the_steps(tmp_path):
    before = window(-2, busy=0.0, power_w=70.0, sm_hz=0.3e9, used=50 * GIB)
    run = run_with(tmp_path, before, window(0), window(1, busy=0.87, power_w=418.0))
    (gpu,) = run.gpus
    assert (gpu.looks, gpu.busy_share, gpu.power_w) == (40, pytest.approx(0.85), pytest.approx(415.0))
    assert (gpu.clock_hz, gpu.memory_used, gpu.memory_whole) == (1.6e9, 31 * GIB, 80 * GIB)
    assert run.gpus_reason is None


def test_a_line_of_the_answer_has_them_all(tmp_path):
    run = run_with(tmp_path, window(0, held_looks=3, held_by={"power": 3}), window(1))
    line = (
        "GPU 0: in use 83 % of the time, 412 W of 700, 1.6 GHz of 1.98, throttled by power in 8 % of 40 looks, "
        "memory 31 GiB of 80 GiB."
    )
    assert line in list(run_notes(run))


def test_of_many_gpus_one_line_has_the_range(tmp_path):
    run = run_with(tmp_path, *(window(0, index=index, busy=0.5 + index / 10) for index in range(4)))
    assert any(line.startswith("4 GPUs: in use 50 to 80 % of the time, 412 to 412 W") for line in run_notes(run))


def test_a_page_has_a_row_for_each_gpu(tmp_path):
    section = attached_section(run_with(tmp_path, window(0, processes=[OWN, {**OWN, "pid": 7, "whose": "other"}])))
    titles = [part.title for part in section.parts if hasattr(part, "title")]
    assert "GPUs" in titles


def test_clocks_that_are_held_back_are_a_finding(tmp_path):
    run = run_with(tmp_path, window(0, held_looks=8, held_by={"heat": 8}), window(1))
    (finding,) = [each for each in run.findings if each.kind == "throttling"]
    expected = "heat held the clocks of GPU 0 back in 20 % of 40 looks, 1.6 GHz of 1.98, 412 W of 700"
    assert finding.sentence == expected


@pytest.mark.parametrize("held", [None, 0, 3])
def test_clocks_that_are_hardly_held_back_or_not_known_to_be_are_none(tmp_path, held):
    run = run_with(tmp_path, window(0, held_looks=held, held_by={"power": held} if held else {}), window(1))
    assert not any(each.kind == "throttling" for each in run.findings)


def test_another_process_on_the_same_gpu_is_named(tmp_path):
    other = {"pid": 4711, "whose": "other", "name": "python3", "memory": 2 * GIB, "looks": 12}
    run = run_with(tmp_path, window(0, processes=[OWN, other]), window(1))
    (finding,) = [each for each in run.findings if each.kind == "shared_gpu"]
    assert finding.sentence == "GPU 0 was shared with python3 4711, which this run did not start"


def test_nobody_is_named_where_the_driver_numbers_processes_otherwise(tmp_path):
    """In a container a number of the driver may be that of any process here."""
    other = {"pid": 12, "whose": "other", "name": "sh", "memory": GIB, "looks": 20}
    unseen = {"pid": 99_000, "whose": "unseen", "memory": 30 * GIB, "looks": 20}
    run = run_with(tmp_path, window(0, processes=[other, unseen]))
    assert not any(each.kind == "shared_gpu" for each in run.findings)
    assert (run.gpus[0].memory_of_run, run.gpus[0].reason) == (None, gpus.NUMBERED_OTHERWISE)


def test_memory_of_the_run_is_that_of_all_its_processes_on_the_gpu(tmp_path):
    second = {**OWN, "pid": 101, "memory": 5 * GIB}
    run = run_with(tmp_path, window(0, processes=[OWN, second]), world=2)
    assert (run.gpus[0].memory_of_run, run.gpus[0].ranks) == (35 * GIB, [0, 1])


def test_memory_of_the_run_is_not_known_where_the_driver_hides_that_of_one_process(tmp_path):
    run = run_with(tmp_path, window(0, processes=[OWN, {**OWN, "pid": 101, "memory": None}]))
    assert run.gpus[0].memory_of_run is None


def test_a_gpu_without_a_process_of_the_run_is_left_out(tmp_path):
    run = run_with(tmp_path, window(0), window(0, index=1, processes=[]))
    assert [gpu.index for gpu in run.gpus] == [0]


def test_a_part_of_a_divided_gpu_has_memory_and_a_reason(tmp_path):
    unknown = dict.fromkeys(("busy", "power_w", "limit_w", "sm_hz", "highest_sm_hz", "held_looks"))
    run = run_with(tmp_path, window(0, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", memory=10 * GIB, **unknown))
    (gpu,) = run.gpus
    assert (gpu.busy_share, gpu.throttled_share, gpu.reason) == (None, None, gpus.OF_THE_WHOLE)
    assert "GPU 0: memory 31 GiB of 10 GiB." in list(run_notes(run))


@pytest.mark.parametrize(
    ("lines", "header", "reason"),
    [
        ([{"host": "h", "boot": "b", "reason": "NVML Shared Library Not Found"}], {}, "NVML Shared Library Not Found"),
        ([], {}, gpus.TOO_SHORT),
        ([], {"by_environment": True}, gpus.BY_OTHERS),
        ([window(-9)], {}, gpus.NOT_MEANWHILE),
        ([window(0, boot="another")], {}, gpus.NOT_MEANWHILE),
    ],
    ids=["no driver", "too short", "by others", "not meanwhile", "another host"],
)
def test_without_a_look_the_reason_is_given(tmp_path, lines, header, reason):
    run = run_with(tmp_path, *lines, **header)
    assert (run.gpus, run.gpus_reason) == ([], reason)


def states(*energies: float | None, watts: float = 300.0) -> list[GpuState]:
    unknown = GpuState("a GPU", *[None] * 8)
    fields = vars(unknown)
    return [GpuState(**{**fields, "energy_j": each, "power_w": watts, "power_limit_w": 700.0}) for each in energies]


@pytest.mark.parametrize(
    ("energies", "watts"),
    [
        ((1000.0, 1800.0), 400.0),
        ((1000.0, 100.0), 300.0),
        ((0.0, 4.3e9), 300.0),
        ((None, 1800.0), 300.0),
        ((None, None), 300.0),
    ],
    ids=["counted", "set back", "leaps", "known at the end alone", "no counter"],
)
def test_power_is_counted_unless_the_counter_was_set_anew(energies, watts):
    (first,) = states(energies[0])
    stretch = gpu_watch._LooksAtGpu(0, first, states(*energies))
    assert gpu_watch._power(stretch, 2.0) == pytest.approx(watts)


SCRIPT = """
import os, sys, threading, time
with open(os.environ["FAKE_GPU_PROCESSES"], "w") as file:
    file.write(f"{os.getpid()}")
time.sleep(1.8)
print("pynvml" in sys.modules, threading.active_count())
"""


def attach(folder: Path, machine: str, **variables: str) -> tuple[list[dict], str]:
    """Return the lines about GPUs of a script of 1.8 s, and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(DRIVER), "FAKE_GPUS": machine, **variables}
    command = [*PROGRAM, "attach", "-o", str(folder / "results"), "--", sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    files = (folder / "results" / RECORDS).glob("gpus-*.txt")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()], done.stdout


def test_gpus_are_read_by_the_process_of_steptime_alone(tmp_path):
    lines, printed = attach(tmp_path, "h100", FAKE_GPU_PROCESSES=str(tmp_path / "pids"))
    assert printed == "False 1\n"
    assert {(each["index"], each["name"], each["limit_w"]) for each in lines} == {(0, "NVIDIA H100 80GB HBM3", 700.0)}
    (own,) = {(each["whose"], each["memory"]) for line in lines for each in line["processes"]}
    assert own == ("own", 4 * GIB)
    assert lines[-1]["power_w"] == pytest.approx(350.0, rel=0.2)


def test_a_process_that_the_run_did_not_start_is_told_apart(tmp_path):
    other = subprocess.Popen(["sleep", "30"])
    try:
        script = SCRIPT.replace('f"{os.getpid()}"', f'f"{{os.getpid()}} {other.pid}"')
        environment = {**os.environ, "PYTHONPATH": str(DRIVER), "FAKE_GPUS": "h100"}
        environment["FAKE_GPU_PROCESSES"] = str(tmp_path / "pids")
        command = [*PROGRAM, "attach", "-o", str(tmp_path / "results"), "--", sys.executable, "-c", script]
        subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    finally:
        other.kill()
        other.wait()
    (file,) = (tmp_path / "results" / RECORDS).glob("gpus-*.txt")
    processes = [each for line in file.read_text().splitlines() for each in json.loads(line)["processes"]]
    assert {(each["whose"], each["name"]) for each in processes if each["pid"] == other.pid} == {("other", "sleep")}


def test_without_a_driver_the_reason_is_on_record(tmp_path):
    lines, _ = attach(tmp_path, "none", FAKE_GPU_PROCESSES=str(tmp_path / "pids"))
    (line,) = lines
    assert line["reason"].startswith("NVIDIA's management library cannot be used: NVMLError")


FULL = "resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))"
UNWRITABLE = {
    "full disk": FULL.format(0),
    "records gone": "shutil.rmtree(records)",
    "a folder in the file's place": "[(path.unlink(), path.mkdir()) for path in records.glob('gpus-*')]",
    "a link in the file's place": "[(path.unlink(), path.symlink_to('/dev/full')) for path in records.glob('gpus-*')]",
}


@pytest.mark.parametrize("what", UNWRITABLE)
def test_gpus_that_cannot_be_written_about_are_one_line_and_the_command_goes_on(tmp_path, what):
    script = f"""
import os, pathlib, resource, shutil, time
records = pathlib.Path("results/attached")
while {not what.startswith(("full", "records"))} and not list(records.glob("gpus-*")):
    time.sleep(0.1)
{UNWRITABLE[what]}
time.sleep(3.5)
{FULL.format("resource.RLIM_INFINITY")}
print("out")
raise SystemExit(7)
"""
    environment = {**os.environ, "PYTHONPATH": str(DRIVER), "FAKE_GPUS": "h100"}
    command = [*PROGRAM, "attach", "-o", "results", "--", sys.executable, "-c", script]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("steptime attach: what the GPUs did is not on record to the end: ") == 1
