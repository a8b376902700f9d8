"""``torchrun --nnodes 2`` started on each of two hosts by an attach of its own, with one folder and with two."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_bed import ClusterBed, running_bed
from launching import interpreter_for
from program import PROGRAM

from steptime.attached.summary import attached_run
from steptime.results.joined_files import reported_folder
from steptime.results.store import Store

# Each test imports PyTorch four times.
pytestmark = [pytest.mark.needs("hosts", "root"), pytest.mark.framework("pytorch"), pytest.mark.timeout(600)]
SCRIPT = Path(__file__).with_name("slow_rank.py")


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    with running_bed(2) as made:
        yield made


def start(bed: ClusterBed, folder: Path, rank: int, results: str) -> "subprocess.Popen[str]":
    """Start the launcher of a node."""
    launcher = [
        str(interpreter_for("pytorch")),
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
    ]
    launcher += ["--node-rank", str(rank), "--master-addr", bed.address("n0"), "--master-port", "29400"]
    command = [*PROGRAM, "attach", "--json", "-o", str(folder / results), "--", *launcher, str(SCRIPT)]
    return subprocess.Popen(
        bed.command(f"n{rank}", command),
        env=bed.variables({"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(bed: ClusterBed, folder: Path, names: tuple[str, str]) -> dict:
    """Train on both nodes, and return what a report of the results folders says."""
    started = [start(bed, folder, rank, name) for rank, name in enumerate(names)]
    errors = [process.communicate(timeout=500)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    with reported_folder([folder / name for name in dict.fromkeys(names)]) as (base, recorded):
        return attached_run(*(recorded or Store.open(base).attached())).to_json()


@pytest.mark.alone
@pytest.mark.parametrize("names", [("one", "two"), ("shared", "shared")], ids=["own folders", "one folder"])
def test_the_slow_rank_on_the_other_host_is_found(bed, tmp_path, names):
    found = answer_of(bed, tmp_path, names)
    assert [(rank["rank"], rank["host"]) for rank in found["ranks"]] == [(0, "n0"), (1, "n1")]
    parts = {part["name"]: part["ranks_s"] for part in found["parts"]}
    assert parts["forward"][1] - parts["forward"][0] > 0.03
    assert parts["sync_wait"][0] > 0.03
    assert found["waited_for"]["rank"] in {1, None}  # a busy machine delays the other, too
