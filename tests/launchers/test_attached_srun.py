"""``steptime attach -- srun …`` on two nodes: processes that another host's daemon starts are measured, too."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_bed import ClusterBed, running_bed
from launching import interpreter_for
from program import PROGRAM

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "attach" / "scripts"
START = "RANK=$SLURM_PROCID WORLD_SIZE=2 exec {python} {script} ddp"
UNATTACHED = "import os, sys; sys.exit('STEPTIME_ATTACH' in os.environ)"
pytestmark = [pytest.mark.needs("hosts", "root"), pytest.mark.framework("pytorch")]


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    with running_bed(2) as made:
        yield made


def attached(bed: ClusterBed, folder: Path) -> dict:
    """Return the answer about a training on both nodes."""
    variables = {
        "MASTER_ADDR": bed.address("n0"),
        "MASTER_PORT": "29400",
        "OUT": str(folder),
        "STEPS": "12",
        "OMP_NUM_THREADS": "1",
    }
    settings = [f"{name}={value}" for name, value in variables.items()]
    shell = START.format(python=interpreter_for("pytorch"), script=SCRIPTS / "loops.py")
    return answer(bed, folder, ["srun", "-N2", "-n2", "/usr/bin/env", *settings, "/bin/sh", "-c", shell])


def answer(bed: ClusterBed, folder: Path, command: list[str]) -> dict:
    done = bed.run(*PROGRAM, "attach", "--json", "-o", str(folder / "results"), "--", *command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


@pytest.fixture(scope="module")
def found(bed: ClusterBed, tmp_path_factory: pytest.TempPathFactory) -> dict:
    return attached(bed, tmp_path_factory.mktemp("srun"))


def test_ranks_on_two_nodes_are_reached_and_the_slow_one_is_named(found):
    assert [(rank["rank"], rank["host"], rank["steps"]) for rank in found["ranks"]] == [(0, "n0", 12), (1, "n1", 12)]
    assert found["waited_for"]["rank"] in {1, None}
    (forward,) = [part for part in found["parts"] if part["name"] == "forward"]
    assert forward["ranks_s"][1] - forward["ranks_s"][0] > 0.01


def test_work_of_processes_that_a_daemon_started_is_the_commands_own(found):
    assert found["noise"]["own_cpu_cores"] * found["wall_s"] > 2.0  # importing torch twice takes longer


def test_an_environment_that_srun_keeps_back_is_named(bed, tmp_path):
    command = ["srun", "-N2", "-n2", "--export=NONE", "/usr/bin/python3", "-c", UNATTACHED]
    found = answer(bed, tmp_path, command)
    assert "srun --export=NONE" in found["not_attached"]
    assert found["parts"] == []
