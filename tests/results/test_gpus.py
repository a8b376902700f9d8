"""What NVIDIA's management library tells of the GPUs of a launch, by machines that a stand-in of it makes up."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import pynvml as real
import pytest

from fake_driver import pynvml as fake
from steptime.catalog.accelerators import find_accelerators
from steptime.results import gpus
from steptime.results.gpus import GpuSamples, gpu_links, gpu_states
from steptime.results.noise import flags


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def has(name: str, visible: str | None = None) -> Any:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        library = fake.machine(name)
        monkeypatch.setitem(sys.modules, "pynvml", library)
        gpus._started.cache_clear()
        return library

    yield has
    gpus._started.cache_clear()


def sampled(used: int, seconds: float = 0.3) -> dict[str, float | None]:
    begin = time.monotonic()
    with GpuSamples(every_s=0.01) as samples:
        time.sleep(seconds)
    return samples.noise(begin, time.monotonic(), used)


def test_the_stand_in_has_nothing_that_the_library_lacks():
    names = [name for name in vars(fake) if name.startswith(("nvml", "NVML"))]
    assert [name for name in names if not hasattr(real, name)] == []


def test_clocks_heat_power_and_memory_are_those_of_the_timed_steps(machine):
    machine("h100")
    found = sampled(1)
    assert found["gpu_samples"] > 3
    assert (found["gpu_sm_hz"], found["gpu_highest_temperature_c"]) == (1.98e9, 61.0)
    assert (found["gpu_power_limit_share"], found["gpu_memory_used_bytes"]) == (0.5, 5 * 2**30)
    assert flags(found, 1, 1, 1) == []


@pytest.mark.parametrize(("name", "reserved"), [("h100", 0), ("old driver", fake.RESERVED)])
def test_memory_in_use_is_without_what_the_driver_reserves_where_it_tells_that_apart(machine, name, reserved):
    machine(name)
    assert gpu_states()[0].memory_used_bytes == 5 * 2**30 + reserved


@pytest.mark.parametrize(("name", "busy"), [("h100", 0.97), ("waiting", 0.11), ("mig", None)])
def test_the_share_of_time_with_a_kernel_at_work_is_kept(machine, name, busy):
    machine(name)
    assert sampled(1, 0.1)["gpu_busy_share"] == (busy and pytest.approx(busy))


@pytest.mark.parametrize(("name", "used", "watts"), [("h100", 1, 350.0), ("hgx", 2, 700.0), ("geforce", 1, None)])
def test_power_is_counted_over_the_timed_steps_of_the_gpus_used(machine, name, used, watts):
    machine(name)
    assert sampled(used)["gpu_counted_w"] == (watts and pytest.approx(watts, rel=0.05))


def test_what_was_read_before_and_behind_the_timed_steps_does_not_count(machine):
    machine("h100")
    with GpuSamples(every_s=0.01) as samples:
        time.sleep(0.1)
    now = time.monotonic()
    assert samples.noise(now, now + 1.0, 1) == {}


def test_a_gpu_for_games_tells_by_its_reasons_that_it_is_held_back(machine):
    machine("geforce")
    assert gpu_states()[0].throttled_s is None
    found = sampled(1)
    assert found["gpu_held_back_share"] == 1.0
    assert flags(found, 1, 1, 1) == ["throttled_gpu_clocks"]


@pytest.mark.parametrize(
    ("visible", "used", "marks"),
    [
        (None, 1, ["noisy_gpu", "throttled_gpu_clocks"]),
        ("1", 1, []),
        ("1,0", 1, []),
    ],
)
def test_gpus_that_a_launch_does_not_use_do_not_count(machine, visible, used, marks):
    machine("neighbours", visible)
    assert flags(sampled(used), 1, 1, 1) == marks


def test_of_a_divided_gpu_the_part_that_cuda_sees_is_asked(machine):
    library = machine("mig")
    (state,) = gpu_states()
    assert (state.name, state.sm_hz) == ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None)
    assert [each.memory_bytes for each in find_accelerators(library).devices] == [10 * 2**30]
    assert sampled(1)["gpu_sm_hz"] is None


def test_a_machine_without_gpus_is_not_read(machine):
    machine("none")
    assert sampled(1, 0.05) == {}


@pytest.mark.parametrize(("name", "links"), [("h100", {}), ("neighbours", {"0-1": "sockets"}), ("mig", {})])
def test_links_between_gpus_are_named(machine, name, links):
    machine(name)
    assert gpu_links() == links


def test_every_pair_of_gpus_behind_a_switch_of_nvlink_is_named(machine):
    machine("hgx")
    assert gpu_links() == dict.fromkeys(["0-1", "0-2", "0-3", "1-2", "1-3", "2-3"], "NVLink x18")
