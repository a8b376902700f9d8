"""``steptime attach -- srun …`` in a batch script: processes that another host's daemon starts are measured, too."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_bed import ClusterBed, running_bed
from launching import interpreter_for
from program import PROGRAM

from steptime.attached.summary import attached_run
from steptime.results.store import Store

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "attach" / "scripts"
BATCH = Path(__file__).parents[2] / "examples" / "cluster" / "train.sbatch"
UNATTACHED = "import os, sys; sys.exit('STEPTIME_ATTACH' in os.environ)"
pytestmark = [pytest.mark.needs("hosts", "root"), pytest.mark.framework("pytorch")]


@pytest.fixture(scope="module")
def bed() -> Iterator[ClusterBed]:
    with running_bed(2) as made:
        yield made


def submitted(bed: ClusterBed, folder: Path) -> tuple[dict, str]:
    """Return the answer about the example of a batch script that trains on both nodes, and what it printed."""
    programs = {"python": [str(interpreter_for("pytorch"))], "steptime": [str(word) for word in PROGRAM]}
    for name, words in programs.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (folder / name).chmod(0o700)
    variables = {"OUT": str(folder), "STEPS": "12", "OMP_NUM_THREADS": "1"}
    variables["PATH"] = os.pathsep.join([str(folder), bed.variables()["PATH"]])
    sbatch = ["sbatch", "--wait", "-o", "output", "-D", str(folder), str(BATCH), str(SCRIPTS / "loops.py"), "ddp"]
    done = bed.run(*sbatch, environment=variables)
    output = (folder / "output").read_text()
    assert done.returncode == 0, done.stderr + output
    (results,) = (folder / "steptime-results").iterdir()
    return attached_run(*Store.open(results).attached()).to_json(), output


def answer(bed: ClusterBed, folder: Path, command: list[str]) -> dict:
    done = bed.run(*PROGRAM, "attach", "--json", "-o", str(folder / "results"), "--", *command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


@pytest.fixture(scope="module")
def job(bed: ClusterBed, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str]:
    return submitted(bed, tmp_path_factory.mktemp("sbatch"))


@pytest.fixture
def found(job: tuple[dict, str]) -> dict:
    return job[0]


def test_the_answer_ends_what_a_batch_script_prints(job):
    assert "2 ranks on 2 hosts" in job[1]


def test_ranks_on_two_nodes_are_reached_and_the_slow_one_is_named(found):
    assert [(rank["rank"], rank["host"], rank["steps"]) for rank in found["ranks"]] == [(0, "n0", 12), (1, "n1", 12)]
    assert found["waited_for"]["rank"] in {1, None}
    (forward,) = [part for part in found["parts"] if part["name"] == "forward"]
    assert forward["ranks_s"][1] > 0.015  # for which it sleeps there


def test_work_of_processes_that_a_daemon_started_is_the_commands_own(found):
    assert found["noise"]["own_cpu_cores"] * found["wall_s"] > 2.0  # importing torch twice takes longer


def test_an_environment_that_srun_keeps_back_is_named(bed, tmp_path):
    command = ["srun", "-N2", "-n2", "--export=NONE", "/usr/bin/python3", "-c", UNATTACHED]
    found = answer(bed, tmp_path, command)
    assert "srun --export=NONE" in found["not_attached"]
    assert found["parts"] == []
