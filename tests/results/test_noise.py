import dataclasses
import math
import subprocess
import sys
import time

import pynvml
import pytest

from steptime.results import gpus, machine
from steptime.results import machine as proc_files
from steptime.results.noise import difference, flags, snapshot

BURN = "import time\nend = time.monotonic() + 1.2\nwhile time.monotonic() < end: pass"

WORK = "import time\nwhile time.process_time() < 0.4: pass\nprint(time.process_time())"


def shifted(before, **changes):
    """Return a snapshot one second later that differs in ``changes`` only."""
    return dataclasses.replace(before, at_s=before.at_s + 1.0, **changes)


@pytest.fixture(scope="module")
def before():
    return snapshot()


def test_every_number_is_finite_or_null(before):
    for value in difference(before, snapshot()).values():
        assert value is None or math.isfinite(value)


def test_nothing_happens_between_a_snapshot_and_itself_a_second_later(before):
    noise = difference(before, shifted(before))
    assert noise["wall_s"] == pytest.approx(1.0)
    assert noise["foreign_cpu_cores"] in (None, 0.0)
    assert noise["involuntary_switches"] == 0.0
    assert flags(noise, workers=1, cores=1, threads=1) == []


def test_work_of_awaited_children_is_our_own():
    first = snapshot()
    used = subprocess.run([sys.executable, "-c", WORK], check=True, capture_output=True, text=True).stdout
    noise = difference(first, snapshot())
    # On a machine that others use the child takes longer for it, and no more.
    assert float(used) <= noise["own_cpu_cores"] * noise["wall_s"] < float(used) + 1.0


def test_work_of_others_is_foreign():
    """Busy processes that are not awaited are nobody's but their own."""
    first = snapshot()
    processes = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(2)]
    try:
        time.sleep(1.2)
        noise = difference(first, snapshot())
    finally:
        for process in processes:
            process.wait()
    assert noise["foreign_cpu_cores"] > 0.3
    assert "noisy_foreign_cpu" in flags(noise, workers=1, cores=1, threads=1)


def test_foreign_load_is_what_the_machine_did_less_what_we_did(before):
    spent = dict(before.processor_s)
    after = shifted(
        before,
        processor_s={**spent, "user": spent["user"] + 1.5, "idle": spent["idle"] + 0.5},
        own_cpu_s=before.own_cpu_s + 0.9,
    )
    assert difference(before, after)["foreign_cpu_cores"] == pytest.approx(0.6)
    assert difference(before, after, own_cpu_s=1.4)["foreign_cpu_cores"] == pytest.approx(0.1)


def test_time_that_the_host_took_is_a_share_of_all_time(before):
    spent = dict(before.processor_s)
    after = shifted(before, processor_s={**spent, "steal": spent["steal"] + 0.1, "idle": spent["idle"] + 1.9})
    noise = difference(before, after)
    assert noise["steal_share"] == pytest.approx(0.05)
    assert "noisy_steal" in flags(noise, 1, 1, 1)


def test_what_the_system_does_not_say_is_null_and_never_a_flag(before):
    unknown = {
        "loads": None,
        "runnable": None,
        "processor_s": {},
        "cpu_hz": None,
        "thermal_throttles": None,
        "cgroup_throttled_s": None,
        "cpu_pressure_s": None,
        "memory_total_bytes": None,
        "memory_available_bytes": None,
        "swapped_in_pages": None,
        "network": {},
        "retransmits": None,
        "gpus": [],
        "packages": {},
    }
    silent = dataclasses.replace(before, **unknown)
    noise = difference(silent, shifted(silent))
    known = {"wall_s", "own_cpu_cores", "involuntary_switches"}
    assert {name for name, value in noise.items() if value is not None} == known
    assert flags(noise, 1, 1, 1) == []


def test_workers_times_threads_beyond_the_cores_are_flagged():
    assert flags({}, workers=2, cores=2, threads=1) == []
    assert flags({}, workers=2, cores=2, threads=2) == ["overcommitted"]


@pytest.mark.parametrize(
    ("name", "quiet", "loud"),
    [
        ("foreign_cpu_cores", 0.1, 0.11),
        ("steal_share", 0.01, 0.02),
        ("thermal_throttles", 0.0, 1.0),
        ("cgroup_throttled_share", 0.01, 0.02),
        ("gpu_throttled_share", 0.01, 0.02),
        ("gpu_held_back_share", 0.1, 0.2),
        ("gpu_processes", 1.0, 2.0),
        ("swapped_in_pages", 0.0, 1.0),
        ("memory_available_share", 0.05, 0.04),
    ],
)
def test_each_threshold_raises_one_flag(name, quiet, loud):
    assert flags({name: quiet}, 1, 1, 1) == []
    assert len(flags({name: loud}, 1, 1, 1)) == 1


def test_a_gpu_held_down_by_heat_or_power_is_told(before):
    cold = gpus.GpuState("a GPU", 8e9, 40.0, 1.2e9, 90.0, 100.0, 0, 5.0, 1.0)
    hot = dataclasses.replace(cold, temperature_c=85.0, throttled_s=5.5)
    noise = difference(dataclasses.replace(before, gpus=[cold]), shifted(before, gpus=[hot]))
    assert noise["gpu_throttled_share"] == pytest.approx(0.5)


def test_the_energy_of_all_gpus_is_added_up(before):
    old = gpus.GpuState("a GPU", 8e9, 40.0, 1.2e9, 90.0, 100.0, 0, 5.0, 1.0, energy_j=1000.0)
    new = dataclasses.replace(old, energy_j=1300.0)
    silent = dataclasses.replace(old, energy_j=None)

    def energy(first, last):
        return difference(dataclasses.replace(before, gpus=first), shifted(before, gpus=last))["gpu_energy_j"]

    assert energy([old, old], [new, new]) == pytest.approx(600.0)
    assert energy([old, silent], [new, silent]) is None
    assert energy([], []) is None


@pytest.mark.parametrize(
    ("after", "joules"),
    [({"0": 700.0, "1": 900.0}, 1100.0), ({"0": 50.0, "1": 900.0}, 200_450.0), ({"0": 700.0}, None), ({}, None)],
    ids=["both", "one-began-anew", "one-is-gone", "none"],
)
def test_the_energy_of_all_packages_is_added_up(before, after, joules):
    first = {"0": (200.0, 200_000.0), "1": (300.0, 200_000.0)}
    last = {zone: (taken, 200_000.0) for zone, taken in after.items()}
    noise = difference(dataclasses.replace(before, packages=first), shifted(before, packages=last))
    assert noise["package_energy_j"] == (joules and pytest.approx(joules))


def test_counters_that_begin_anew_within_seconds_say_nothing(before):
    first, last = ({"0": (taken, 100.0)} for taken in (20.0, 60.0))
    assert (
        difference(dataclasses.replace(before, packages=first), shifted(before, packages=last))["package_energy_j"]
        is None
    )


def test_packages_are_read_without_the_parts_that_count_within_them(tmp_path, monkeypatch):
    for zone, taken in (("intel-rapl:0", 5_000_000), ("intel-rapl:0:0", 1_000_000), ("intel-rapl:1", 7_000_000)):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "energy_uj").write_text(f"{taken}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("262143328850\n")
    monkeypatch.setattr(machine, "_POWERCAP", tmp_path)
    found = machine.package_energy()
    assert {zone: taken for zone, (taken, _) in found.items()} == {"intel-rapl:0": 5.0, "intel-rapl:1": 7.0}


def test_a_driver_that_fails_leaves_a_machine_without_gpus(monkeypatch):
    def fail():
        message = "the driver and the library differ"
        raise OSError(message)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    gpus._started.cache_clear()
    try:
        assert gpus.gpu_states() == []
        assert machine.find_accelerators().driver is None
    finally:
        gpus._started.cache_clear()


def test_a_snapshot_takes_little_time():
    begin = time.process_time()
    for _ in range(10):
        snapshot()
    assert (time.process_time() - begin) / 10 < 0.1


def test_processor_seconds_grow_by_the_time_of_all_cores():
    first, begin = proc_files.processor_seconds(), time.monotonic()
    time.sleep(0.5)
    grown = sum(proc_files.processor_seconds().values()) - sum(first.values())
    cores = grown / (time.monotonic() - begin)
    assert cores == pytest.approx(machine.fingerprint()["machine_threads"], rel=0.3)


def test_the_fingerprint_names_the_machine():
    found = machine.fingerprint()
    assert found["cpu"]
    assert 1 <= found["cores"] <= found["threads"] <= found["machine_threads"]
    assert found["memory_bytes"] > 1e8
    assert found["steptime"]


def test_threads_of_one_core_count_once(monkeypatch, tmp_path):
    for thread, core in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}.items():
        (tmp_path / str(thread)).write_text(core)
    monkeypatch.setattr(machine, "_TOPOLOGY", f"{tmp_path}/{{}}")
    assert machine.physical_cores({0, 1, 2, 3}) == 2
    assert machine.physical_cores({0, 1, 3}) == 2
    assert machine.physical_cores({0, 9}) == 2


@pytest.mark.parametrize(
    ("groups", "root", "quotas"),
    [
        ("0::/job/step", "/", {"cpu.max": "", "job/cpu.max": "50000 100000", "job/step/cpu.max": "max 100000"}),
        ("0::/job/step", "/", {"job/cpu.max": "400000 100000", "job/step/cpu.max": "50000 100000"}),
        ("0::/", "/", {"cpu.max": "50000 100000"}),  # a container whose own group is the root that it sees
        ("0::/docker/7", "/docker/7", {"cpu.max": "50000 100000"}),  # one that sees the name outside as well
        ("0::/docker/7/job", "/docker/7", {"cpu.max": "max 100000", "job/cpu.max": "50000 100000"}),
        ("0::/job", "/../..", {"cpu.max": "50000 100000"}),
        ("4:memory:/a\n3:cpu,cpuacct:/job/step\n0::/", "/", {"job/cpu": "50000 100000", "job/step/cpu": "-1 100000"}),
    ],
)
def test_the_least_quota_of_a_control_group_and_of_all_around_it_counts(tmp_path, groups, root, quotas):
    version = "cgroup cgroup rw,cpu,cpuacct" if "cpu," in groups else "cgroup2 cgroup2 rw"
    for file, text in quotas.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "cpu.max":
            path.write_text(f"{text}\n")
        else:
            path.mkdir()
            quota, period = text.split()
            (path.parent / "cpu.cfs_quota_us").write_text(f"{quota}\n")
            (path.parent / "cpu.cfs_period_us").write_text(f"{period}\n")

    mounts = f"25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw\n31 23 0:28 {root} {tmp_path} rw shared:9 - {version}\n"

    assert proc_files.quota_cores(f"{groups}\n", mounts) == 0.5


def test_a_control_group_without_a_quota_leaves_all_cores(tmp_path):
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert proc_files.quota_cores("0::/\n", f"31 23 0:28 / {tmp_path} rw - cgroup2 cgroup2 rw\n") is None
