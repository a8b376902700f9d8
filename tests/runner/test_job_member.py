"""Which commands are members of one job, and that members write to one folder."""

from datetime import UTC, datetime, timedelta

import pytest

from steptime.errors import StoreError
from steptime.results.attached_files import AttachedHeader
from steptime.results.store import Store
from steptime.runner.attached_folder import free_folder, joined_folder
from steptime.runner.attached_run import AttachedCommand
from steptime.runner.job_member import job_member

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
PAIRS = {
    "torchrun": (
        "torchrun --nnodes 2 --node-rank 0 --master-addr n0 train.py --lr 1",
        "torchrun --nnodes=2 --node_rank=1 --master_addr n0 train.py --lr 1",
    ),
    "torchrun without a member's number": (
        "torchrun --nnodes 1:4 --rdzv-id a --rdzv-endpoint n0:29400 train.py",
        "torchrun --nnodes 1:4 --rdzv-id a --rdzv-endpoint n0:29400 train.py",
    ),
    "accelerate": (
        "accelerate launch --num_machines 2 --machine_rank 0 --main_process_ip n0 --main_process_port 1 train.py",
        "accelerate launch --num_machines 2 --machine_rank 1 --main_process_ip n0 --main_process_port 1 train.py",
    ),
    "variables of a pod": (
        "PET_NNODES=2 PET_NODE_RANK=0 PET_MASTER_ADDR=n0 PET_MASTER_PORT=1 torchrun train.py",
        "PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=n0 PET_MASTER_PORT=1 torchrun train.py",
    ),
    "a rank of srun": (
        "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=0 python train.py",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=1 python train.py",
    ),
    "the first names itself localhost": (
        "torchrun --nnodes 2 --node-rank 0 --master-addr localhost --master-port 5 train.py",
        "torchrun --nnodes 2 --node-rank 1 --master-addr n0 --master-port 5 train.py",
    ),
}
OTHERS = {
    "a port": ("--master-port 5", "--master-port 6"),
    "a run id": ("--rdzv-id a", "--rdzv-id b"),
    "a number of nodes": ("--nnodes 2", "--nnodes 3"),
    "an argument of the script": ("train.py", "train.py --seed 2"),
    "the same member": ("--node-rank 1", "--node-rank 0"),
}


def member(text: str, host: str = ""):
    words = text.split()
    variables = dict(word.split("=") for word in words if word[0].isupper())
    found = job_member([word for word in words if not word[0].isupper()], variables)
    return found if found is None or not host else type(found)(found.job, host)


def header(text: str, host: str = "", **more) -> AttachedHeader:
    first = member(text, host)
    said = {
        "command": ["torchrun"],
        "started_at": NOW.isoformat(),
        "boot": "b",
        "begin_ns": 0,
        "wall_minus_monotonic_ns": 0,
    }
    return AttachedHeader.model_validate(said | (first.to_json() if first else {}) | more)


@pytest.mark.parametrize("name", PAIRS)
def test_members_of_a_job_know_one_another(name):
    first, second = PAIRS[name]
    assert member(second, "h1" if first == second else "").belongs_to(
        header(first, "h0" if first == second else ""), NOW
    )


@pytest.mark.parametrize("what", OTHERS)
def test_another_job_differs_in(what):
    text = "torchrun --nnodes 2 --node-rank 1 --master-addr n0 --master-port 5 --rdzv-id a train.py"
    other = text.replace(*OTHERS[what])
    assert not member(other).belongs_to(header(text.replace("--node-rank 1", "--node-rank 0")), NOW)


def test_a_job_that_ended_takes_no_member():
    first, second = PAIRS["torchrun"]
    assert not member(second).belongs_to(header(first, end_ns=1), NOW)


def test_a_job_that_began_long_ago_takes_no_member():
    first, second = PAIRS["torchrun"]
    assert not member(second).belongs_to(header(first), NOW + timedelta(hours=1))


@pytest.mark.parametrize(
    "text",
    [
        "python train.py",
        "torchrun --nproc-per-node 4 train.py",
        "torchrun --nnodes 1 train.py",
        "RANK=0 WORLD_SIZE=4 torchrun --nproc-per-node 4 train.py",
        "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_PROCID=0 srun python train.py",
        "python train.py --nnodes 2",
    ],
)
def test_a_whole_job_is_no_member(text):
    assert member(text) is None


def prepared(folder, number: int):
    words = f"torchrun --nnodes 2 --node-rank {number} --master-addr n0 train.py".split()
    own = job_member(words, {})
    joined = joined_folder(folder, own)
    command = AttachedCommand(words, joined or free_folder(folder), None, flops=False)
    return command.join(own) if joined else command.prepare()


def test_members_write_to_one_folder_each_with_a_hook_of_its_own(tmp_path):
    first, second = (prepared(tmp_path / "out", number) for number in (0, 1))
    assert first.variables["STEPTIME_ATTACH"] == second.variables["STEPTIME_ATTACH"]
    assert first.hook != second.hook
    first.locked.close()


def test_a_member_that_is_there_already_belongs_to_another_run_with_a_folder_of_its_own(tmp_path):
    runs = [prepared(tmp_path / "out", number) for number in (0, 1, 0, 1)]
    assert [run.folder.name for run in runs] == ["out", "out", "out-2", "out-2"]
    for run in (runs[0], runs[2]):
        run.locked.close()


def test_two_members_of_one_name_do_not_share_a_record(tmp_path):
    first = prepared(tmp_path / "out", 0)
    prepared(tmp_path / "out", 1)
    again = AttachedCommand(first.command.words, tmp_path / "out", None, flops=False)
    with pytest.raises(StoreError, match="member-1"):
        again.join(job_member(["torchrun", "--nnodes", "2", "--node-rank", "1", "--master-addr", "n0", "train.py"], {}))
    first.locked.close()


def test_the_first_member_keeps_the_header(tmp_path):
    first = prepared(tmp_path / "out", 0)
    assert Store.open(tmp_path / "out").get("attached")["member"] == "0"
    first.locked.close()
