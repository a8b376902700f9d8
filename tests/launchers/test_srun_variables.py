"""Variables of the job's own shell from which srun takes options change nothing of a launch."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_bed import ClusterBed, running_bed

LAUNCH = str(Path(__file__).with_name("host_launch.py"))
WRITE_VARIABLES = """
import json, os, socket
with open("worker-" + os.environ["STEPTIME_RANK"] + ".json", "w") as file:
    json.dump([socket.gethostname(), os.environ.get("MINE"), os.environ.get("CUDA_VISIBLE_DEVICES")], file)
"""
pytestmark = pytest.mark.needs("hosts", "root")


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    """Two nodes with two GPUs each, as Slurm believes."""
    with running_bed(2) as made:
        yield made


@pytest.mark.parametrize(
    "variable",
    [
        "SLURM_EXPORT_ENV=NONE",
        "SRUN_EXPORT_ENV=NONE",
        "SLURM_GPUS_PER_TASK=1",
        "SLURM_EXCLUSIVE=1",
        "SLURM_STDINMODE=none",
        "SLURM_STDOUTMODE=none",
        "SLURM_LABELIO=1",
    ],
)
def test_a_variable_of_the_shell_hides_nothing_from_a_worker_and_places_it_nowhere_else(bed, tmp_path, variable):
    (tmp_path / "start.py").write_text(WRITE_VARIABLES)
    command = [sys.executable, LAUNCH, str(tmp_path), "slurm", "slurm", "n0,n1", "time_limit_s=40", "probe=1"]
    allocation = ["salloc", "-Q", "--nodelist=n0,n1", "--gres=gpu:2", "--exclusive"]
    done = bed.run(*allocation, "env", variable, "MINE=here", *command)
    assert done.stdout, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert outcome["ok"], outcome["reason"]
    found = [json.loads((tmp_path / f"worker-{rank}.json").read_text()) for rank in range(2)]
    assert found == [["n0", "here", "0,1"], ["n1", "here", "0,1"]]
