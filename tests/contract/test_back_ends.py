"""Every back end that a manifest names exchanges right sums between real processes, whatever the number of workers."""

import pytest
from launching import LaunchResult, launch_ok

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests
from steptime.results.net_records import NetSetting
from steptime.runner.message_timing import net_job
from steptime.runner.net_plan import OPERATIONS, back_ends_of

BACK_ENDS = back_ends_of(load_manifests())
ON_CPU = [(each.manifest.name, name) for name, each in BACK_ENDS.items() if each.support.device == "cpu"]
# The last one is not a whole number of parts for any number of servers or workers here.
SIZES = (1024, 1048572)
ROUNDS, RUNS = 2, 3


def exchange(folder, name: str, workers: int, operations: tuple[str, ...] = ()) -> LaunchResult:
    """Run a back end once, with all its operations by default."""
    back_end = BACK_ENDS[name]
    servers = 2 if STRATEGIES[back_end.support.strategy].servers else 0
    setting = NetSetting(
        back_end=name,
        framework=back_end.manifest.name,
        strategy=back_end.support.strategy,
        options=back_end.options,
        device="cpu",
        operations=operations or tuple(back_end.support.operations),
        sizes=SIZES,
        workers=workers,
        servers=servers,
        rounds=ROUNDS,
        runs=RUNS,
    )
    job = net_job(setting, seed=3)
    return launch_ok(folder, job, workers=workers, servers=servers, time_limit_s=240.0, preloaded=True)


@pytest.mark.sampled("framework", "name")
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize(("framework", "name"), ON_CPU, ids=[name for _, name in ON_CPU])
def test_every_sum_is_right_on_every_worker(tmp_path, framework, name, workers):
    operations = BACK_ENDS[name].support.operations
    result = exchange(tmp_path, name, workers)
    for rank in range(workers):
        found = result.record("net", f"worker-{rank}")
        checked = [each for each in operations if each != "incast" or rank == 0]
        assert (found["checks"], found["wrong"]) == (len(checked) * len(SIZES) * (1 + ROUNDS), 0), found["mistakes"]
        assert len(found["visits"]) == len(operations) * len(SIZES) * ROUNDS
        for visit in found["visits"]:
            assert 2 <= len(visit["ends_s"]) <= 1 + RUNS
            assert visit["ends_s"] == sorted(visit["ends_s"])
    assert result.record("session")["facts"]["framework_version"]


@pytest.mark.framework("pytorch")
def test_sums_are_right_that_nobody_waits_for_before_the_next(tmp_path):
    """By the process group of NCCL's back end, on processors, where each call waits by itself."""
    found = exchange(tmp_path, "gloo", 2, ("allreduce_queued",)).record("net")
    assert (found["checks"], found["wrong"]) == (len(SIZES) * (1 + ROUNDS), 0), found["mistakes"]


def test_names_are_those_of_one_room_each():
    names = [name for manifest in load_manifests().values() for name in manifest.back_ends]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", BACK_ENDS)
def test_a_back_end_names_what_its_room_has(name):
    back_end = BACK_ENDS[name]
    support, manifest = back_end.support, back_end.manifest
    applying = manifest.options_for(support.strategy)
    assert set(support.options) <= set(applying)
    for option, value in support.options.items():
        assert not applying[option].choices or value in applying[option].choices
    assert support.device in manifest.devices
    assert set(support.operations) <= set(OPERATIONS)
    adapter = (manifest.folder / "adapter.py").read_text()
    assert "open_back_end=open_back_end" in adapter
    if STRATEGIES[support.strategy].servers:
        assert "serve_back_end=serve" in adapter
