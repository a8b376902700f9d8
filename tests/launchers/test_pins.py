"""Which cores a worker may use."""

import sys
import textwrap
from pathlib import Path

import pytest

from steptime.launchers.process_env import pins, server_pins, shared_variables, shares_cores
from steptime.launchers.request import Request
from steptime.launchers.table import LocalLauncher
from steptime.worker.process_context import ProcessContext


def request(**fields: object) -> Request:
    settings = {"folder": Path(), "interpreter": Path(sys.executable), "workers": 2, "cores": (0, 1, 2, 3)}
    return Request(**{**settings, **fields})


def test_workers_get_neighbouring_cores_of_their_own():
    assert pins(request(threads=2)) == [(0, 1), (2, 3)]


def test_more_workers_than_cores_start_over():
    assert pins(request(workers=3, cores=(4, 6))) == [(4,), (6,), (4,)]


@pytest.mark.parametrize(
    ("fields", "shared"),
    [({}, False), ({"threads": 2}, False), ({"workers": 5}, True), ({"threads": 3}, True), ({"cores": ()}, False)],
)
def test_workers_share_cores_where_their_threads_outnumber_them(fields: dict[str, object], shared: bool):
    asked = request(**fields)
    assert shares_cores(asked) is shared
    assert ("MPIR_CVAR_ENABLE_HEAVY_YIELD" in shared_variables(asked, "mark", "127.0.0.1", range(20))) is shared


def test_a_worker_may_have_more_cores_than_compute_threads():
    asked = request(cores_per_worker=2)

    assert pins(asked) == [(0, 1), (2, 3)]
    assert shared_variables(asked, "mark", "127.0.0.1", range(20))["OMP_NUM_THREADS"] == "1"


def test_workers_whose_cores_overlap_share_none_that_their_threads_need():
    assert not shares_cores(request(cores_per_worker=3))


def test_a_worker_gets_cores_next_to_its_device():
    asked = request(workers=3, cores=(0, 1, 2, 3), device_cores=((2, 3), (0, 1), (2, 3)))

    assert pins(asked) == [(2,), (0,), (3,)]


@pytest.mark.parametrize(
    ("workers", "cores_per_worker", "cores"),
    [
        (1, None, [(4, 5, 6, 7)]),
        (2, None, [(4, 5, 6, 7), (0, 1, 2, 3)]),
        (4, None, [(4, 5), (0, 1), (6, 7), (2, 3)]),
        (2, 1, [(4,), (0,)]),
    ],
)
def test_a_worker_on_a_gpu_has_its_share_of_the_cores_near_it(workers, cores_per_worker, cores):
    """One of its threads issues the work; others copy batches, run the backward pass, compile and communicate."""
    near = ((4, 5, 6, 7), (0, 1, 2, 3))
    asked = {"cores": tuple(range(8)), "device_cores": near, "on_devices": True, "cores_per_worker": cores_per_worker}
    assert pins(request(workers=workers, **asked)) == cores


def test_workers_of_one_node_start_over_on_its_cores_when_they_run_out():
    assert pins(request(workers=3, threads=2, cores=(0, 1, 2, 3), device_cores=((2, 3),))) == [(2, 3)] * 3


def test_a_device_whose_node_has_no_usable_core_leaves_all_cores():
    assert pins(request(workers=1, device_cores=((),))) == [(0,)]


def test_servers_get_as_many_cores_as_compute_threads():
    assert server_pins(request(workers=1, threads=2)) == []
    assert server_pins(request(workers=1, servers=1, threads=2)) == [(2, 3)]


def test_servers_get_cores_that_are_not_next_to_a_device_in_use():
    assert server_pins(request(workers=1, servers=1, device_cores=((1, 2),))) == [(0,)]


def test_servers_get_cores_that_no_worker_has():
    assert server_pins(request(servers=2)) == [(2,), (3,)]


def test_servers_without_cores_of_their_own_may_use_all():
    assert server_pins(request(servers=2, cores=(0, 1, 2))) == []


def test_colocated_servers_share_the_cores_of_workers_in_turn():
    found = server_pins(request(servers=3, threads=2, colocated_servers=True))
    assert found == [(0, 1), (2, 3), (0, 1)]


def test_a_server_reads_its_own_cores_and_not_a_workers(tmp_path):
    variables = {"STEPTIME_ROLE": "server", "STEPTIME_RANK": "1", "STEPTIME_LOCAL_RANK": "1"}
    cores = {"STEPTIME_CPUS": "0;1", "STEPTIME_SERVER_CPUS": "2;3"}
    assert ProcessContext({**variables, **cores}, str(tmp_path)).cpus == [3]


def test_without_cores_nothing_is_pinned():
    assert pins(request(cores=())) == []


@pytest.mark.parametrize(
    ("role", "local_rank", "cpus"), [("worker", "1", [2, 3]), ("worker", "0", [0, 1]), ("server", "0", [])]
)
def test_a_worker_takes_its_own_cores_from_the_plan_and_a_server_none(role, local_rank, cpus):
    environment = {"STEPTIME_ROLE": role, "STEPTIME_LOCAL_RANK": local_rank, "STEPTIME_CPUS": "0,1;2,3"}
    assert ProcessContext(environment, "").cpus == cpus


def test_a_started_worker_really_runs_on_its_core(tmp_path):
    program = """
        import os
        from steptime.worker.process_context import ProcessContext
        place = ProcessContext(os.environ, "")
        place.pin()
        assert os.sched_getaffinity(0) == set(place.cpus) == {0}, os.sched_getaffinity(0)
    """
    (tmp_path / "start.py").write_text(textwrap.dedent(program))
    assert LocalLauncher().run(request(folder=tmp_path, workers=1, cores=(0,))).ok
