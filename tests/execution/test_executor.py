"""One launch by the executor: the reason of a failure, and a port that another program took."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from trials import trial

from steptime.catalog.manifest import load_manifests
from steptime.catalog.workloads.table import build_workload
from steptime.execution.collected import Collected
from steptime.execution.executor import Executor, LaunchResult
from steptime.execution.jobs import check_job
from steptime.execution.progress import Silent
from steptime.launchers import base
from steptime.launchers.base import free_ports
from steptime.launchers.request import LaunchOutcome
from steptime.runner.preparation import environment_spec, prepare_environments

WORKLOAD = build_workload("lenet5")
TRIAL = trial(strategy="allreduce", workers=2)


@pytest.fixture(scope="module")
def executor() -> Executor:
    manifests = load_manifests()
    prepared = prepare_environments([environment_spec(manifests["reference"])], Silent())
    # On the network that all programs share, where another one can take a port.
    return Executor(manifests, prepared.environments, (), 30.0, isolation="off")


def run(executor: Executor, folder: Path, job=None):
    job = job or check_job(TRIAL, WORKLOAD, (1,))
    return executor.launch(TRIAL, job, folder, last_record="check", pinned=False)


def test_the_record_of_a_launch_on_hosts_has_the_variables_of_these_and_no_other_has(executor, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/of/this/host")
    here = run(executor, tmp_path / "run")
    there = replace(here, outcome=replace(here.outcome, passed={"CUDA_HOME": "/of/the/hosts"}))
    kept = [executor.record_fields(TRIAL, each)["environment_variables"]["CUDA_HOME"] for each in (here, there)]
    assert kept == ["/of/this/host", "/of/the/hosts"]


class Ports:
    """Gives a taken port for the rendezvous so many times, then free ones."""

    def __init__(self, taken: int, times: int) -> None:
        self._taken = taken
        self.left = times

    def __call__(self, count: int, host: str) -> list[int]:
        ports = free_ports(count, host)
        if self.left > 0:
            self.left -= 1
            ports[0] = self._taken
        return ports


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_that_was_taken_meanwhile_costs_a_repetition_and_no_result(executor, tmp_path, monkeypatch, taken_port):
    ports = Ports(taken_port, times=1)
    monkeypatch.setattr(base, "free_ports", ports)

    assert run(executor, tmp_path / "run").reason is None
    assert ports.left == 0


def test_a_port_that_stays_taken_is_the_reason(executor, tmp_path, monkeypatch, taken_port):
    monkeypatch.setattr(base, "free_ports", Ports(taken_port, times=9))

    assert "ddress already in use" in run(executor, tmp_path / "run").reason


@pytest.mark.parametrize(
    ("reason", "crashed"),
    [
        ("worker-0 was ended by SIGABRT", True),
        ("mpiexec ended with exit code 139", True),
        ("worker-1 was ended by SIGKILL; the system kills a process like this when memory runs out", False),
        ("worker-1 ended with exit code 1", False),
        ("not finished after the time limit of 30 s: worker-0 still running", False),
        (None, False),
    ],
)
def test_a_crash_is_told_from_a_failure_that_somebody_meant(reason, crashed):
    outcome = LaunchOutcome(ok=reason is None, reason=reason, wall_s=1.0, commands=[])

    assert LaunchResult(outcome, Collected({}), reason, {}).crashed == crashed


def test_the_worker_that_failed_first_is_the_reason_and_not_its_peers(executor, tmp_path):
    job = check_job(TRIAL, WORKLOAD, (1,))
    job["workload"]["layers"][0]["kind"] = "no-such-kind"

    ran = run(executor, tmp_path / "run", job)

    assert "no-such-kind" in ran.reason
    first = ran.reason.split(":")[0]
    assert "Traceback" in ran.stderr[f"{first}.err"]


def test_a_run_folder_that_cannot_be_made_is_the_reason_of_the_failure(executor, tmp_path):
    (tmp_path / "file").touch()

    assert (
        f"the run folder {tmp_path / 'file' / 'run'} cannot be used" in run(executor, tmp_path / "file" / "run").reason
    )
