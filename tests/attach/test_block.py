"""``with steptime.attached():`` records the steps of a block as an attached command's, and leaves all else alone."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from launching import interpreter_for
from warm_frameworks import warm_framework

import steptime
from steptime.attach.block import VARIABLE, attached, claimed_folder

SCRIPT = """
import time
import torch
import torch.distributed as dist
import steptime

torch.set_num_threads(1)

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

def train(steps, block):
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(torch.randn(2 * steps, 16), batch_size=2)
    with block:
        for x in loader:
            loss = net(x).square().mean()
            time.sleep(0.002)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return loss.item()

class Nothing:
    __enter__ = __exit__ = lambda *_: None

losses = [train(12, steptime.attached("runs")), train(12, Nothing()), train(12, steptime.attached("runs"))]
print(losses[0] == losses[1] == losses[2])
dist.destroy_process_group()
with steptime.attached("runs"):
    raise SystemExit(7)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The script, run in an environment that has nothing but PyTorch, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("block")
    source = str(Path(steptime.__file__).parents[1])
    (folder / "script.py").write_text(f"import sys\nsys.path.append({source!r})\n{SCRIPT}")
    return warm_framework("pytorch", attached=False).ended(folder, "script.py"), folder


def lines_of(folder: Path) -> list[dict]:
    (record,) = folder.glob("*.jsonl")
    return [json.loads(line) for line in record.read_text().splitlines()]


@pytest.mark.framework("pytorch")
def test_a_script_with_blocks_ends_as_without_them(run):
    done, _ = run
    assert done.returncode == 7, done.stderr
    assert done.stdout == "True\n"


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("name", ["runs", "runs-2"])
def test_the_steps_of_each_block_and_no_others_are_on_record(run, name):
    lines = lines_of(run[1] / name)
    assert len([line for line in lines if line["kind"] == "step"]) == 12
    assert lines[-1]["kind"] == "end"


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("name", ["runs", "runs-2"])
def test_a_process_group_and_ddp_from_before_a_block_are_known(run, name):
    lines = lines_of(run[1] / name)
    (rank,) = [line for line in lines if line["kind"] == "rank"]
    assert (rank["rank"], rank["world"], rank["by"]) == (0, 1, "torch.distributed/gloo")
    assert all(line["backwards"][0][3] for line in lines if line["kind"] == "step")


@pytest.mark.framework("pytorch")
def test_each_block_names_the_command_that_reports_it(run):
    done, folder = run
    assert done.stderr.splitlines() == [
        f"steptime: 12 steps recorded: steptime report {folder / 'runs'}",
        f"steptime: 12 steps recorded: steptime report {folder / 'runs-2'}",
        "steptime: 0 steps recorded: no step was seen",
    ]


PARENT = """
import multiprocessing, os
import steptime

def train():
    import torch

    net = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.utils.data.DataLoader(torch.randn(24, 8), batch_size=2):
        net(x).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    before = dict(os.environ)
    with steptime.attached("runs"):
        for way in ("spawn", "fork"):
            child = multiprocessing.get_context(way).Process(target=train)
            child.start()
            child.join()
    print(os.environ == before)
    with steptime.attached("runs"):
        os.environ["PYTHONPATH"] += os.pathsep + "own"
    print(os.environ["PYTHONPATH"] == before["PYTHONPATH"] + os.pathsep + "own")
    print([name for name in os.listdir("temporary") if "steptime" in name])
"""


@pytest.mark.costly
@pytest.mark.framework("pytorch")
def test_what_a_block_spawns_or_forks_is_recorded_and_the_environment_is_left_as_it_was(tmp_path):
    (tmp_path / "script.py").write_text(PARENT)
    (tmp_path / "temporary").mkdir()
    source = str(Path(steptime.__file__).parents[1])
    done = subprocess.run(
        [interpreter_for("pytorch"), "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stdout == "True\nTrue\n[]\n"
    runs = tmp_path / "runs"
    assert done.stderr.splitlines()[0] == (
        f"steptime: 0 steps recorded, and those of 2 child processes: steptime report {runs}"
    )
    records = [[json.loads(line) for line in path.read_text().splitlines()] for path in runs.glob("*.jsonl")]
    assert {lines[0]["entry"].partition("+")[0] for lines in records} <= {"torch.backends", "sitecustomize", "block"}
    assert [len([line for line in lines if line["kind"] == "step"]) for lines in records] == [12, 12]


def test_nothing_is_recorded_below_attach_which_records_all(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "elsewhere")
    with attached(tmp_path / "runs") as block:
        assert (block.folder, os.environ[VARIABLE]) == (None, "elsewhere")
    assert not (tmp_path / "runs").exists()
    assert os.environ[VARIABLE] == "elsewhere"


def test_a_folder_that_cannot_be_used_keeps_no_block_from_running(capsys, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with attached("/proc/runs") as block:
        assert block.folder is None
    assert VARIABLE not in os.environ
    assert capsys.readouterr().err.startswith("steptime: not measured: ")


def test_what_a_block_raises_goes_on():
    with pytest.raises(ValueError, match="mine"), attached("/proc/runs"):
        raise ValueError("mine")  # noqa: EM101 - what a user raises


@pytest.fixture
def claim(tmp_path, monkeypatch):
    """Return what claims a folder as a rank does, and returns its name."""

    def claimed(rank=None, world=None):
        for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, str(value))
        return Path(claimed_folder(str(tmp_path / "runs"))).name

    return claimed


def test_the_ranks_of_a_job_share_a_folder_and_the_next_job_has_another(claim):
    assert [claim(rank, 2) for rank in (0, 1, 1, 0)] == ["runs", "runs", "runs-2", "runs-2"]


def test_a_job_of_another_size_has_another_folder(claim):
    assert [claim(), claim(0, 2), claim(1, 2), claim(1, 3)] == ["runs", "runs-2", "runs-2", "runs-3"]


def test_a_folder_of_long_ago_is_left_alone(claim, tmp_path):
    assert claim(0, 2) == "runs"
    (mark,) = (tmp_path / "runs").iterdir()
    os.utime(mark, (time.time() - 3600,) * 2)
    assert claim(1, 2) == "runs-2"


def test_a_folder_with_other_files_is_left_alone(claim, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine.txt").touch()
    assert claim() == "runs-2"


def test_records_of_another_rank_that_came_first_are_of_the_job(claim, tmp_path):
    claim(0, 2)
    (tmp_path / "runs" / "host-1-2.jsonl").touch()
    assert claim(1, 2) == "runs"
