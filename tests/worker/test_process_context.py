"""Who a process is, from the variables that its launcher sets."""

import pytest

from steptime.worker.framework import require_own_device
from steptime.worker.process_context import ProcessContext

FULL = {
    "STEPTIME_ROLE": "server",
    "STEPTIME_RANK": "1",
    "STEPTIME_WORKERS": "3",
    "STEPTIME_SERVERS": "2",
    "STEPTIME_ROOT_ADDRESS": "10.0.0.1:15000",
    "STEPTIME_WORKER_ADDRESSES": "10.0.0.1:1,10.0.0.1:2,10.0.0.1:3",
    "STEPTIME_SERVER_ADDRESSES": "10.0.0.1:4,10.0.0.1:5",
    "STEPTIME_INTERFACE": "eth0",
}


def test_every_variable_of_the_protocol_is_read():
    context = ProcessContext(FULL, "/run/folder")
    assert (context.role, context.rank, context.workers, context.servers) == ("server", 1, 3, 2)
    assert context.worker_addresses == ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]
    assert context.server_addresses == ["10.0.0.1:4", "10.0.0.1:5"]
    assert (context.interface, context.folder) == ("eth0", "/run/folder")


def test_the_root_address_falls_into_host_and_port():
    context = ProcessContext(FULL, "")
    assert (context.root_host, context.root_port) == ("10.0.0.1", 15000)


def test_the_root_of_an_ipv6_host_keeps_its_colons():
    context = ProcessContext({"STEPTIME_ROOT_ADDRESS": "::1:15000"}, "")
    assert (context.root_host, context.root_port) == ("::1", 15000)


def test_a_process_that_is_told_nothing_is_the_only_worker():
    context = ProcessContext({}, "")
    assert (context.name, context.workers, context.servers, context.cpus) == ("worker-0", 1, 0, [])


@pytest.mark.parametrize("variable", ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])
def test_under_mpi_and_slurm_the_launchers_own_rank_is_read(variable):
    assert ProcessContext({variable: "5"}, "").name == "worker-5"


@pytest.mark.parametrize("variable", ["MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"])
def test_under_mpi_and_slurm_the_launchers_own_local_rank_is_read(variable):
    assert ProcessContext({variable: "2"}, "").local_rank == 2


def test_a_rank_of_steptimes_own_wins_over_that_of_an_mpi_around_it():
    assert ProcessContext({"STEPTIME_RANK": "1", "PMI_RANK": "7"}, "").rank == 1


def test_workers_beyond_the_plan_share_cores_from_its_start():
    assert ProcessContext({"STEPTIME_CPUS": "0;1", "STEPTIME_LOCAL_RANK": "2"}, "").cpus == [0]


def test_a_rank_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="first"):
        ProcessContext({"STEPTIME_RANK": "first"}, "")


def test_nccl_is_given_one_interface_and_not_all_that_begin_with_its_name():
    assert ProcessContext({"STEPTIME_INTERFACE": "lo"}, "").nccl_interface == "=lo"


def test_a_worker_without_a_device_of_its_own_is_refused_with_the_way_out():
    require_own_device(1, 2, "torch")
    with pytest.raises(RuntimeError, match=r"worker 2 of this host needs a GPU .* torch sees 2; use fewer workers"):
        require_own_device(2, 2, "torch")
