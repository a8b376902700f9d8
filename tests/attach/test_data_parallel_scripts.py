"""Two processes of DDP in real PyTorch, attached: what they exchange beside gradients, and how it is named."""

import json

import pytest
from warm_frameworks import warm_framework

from steptime.attached.summary import attached_run
from steptime.launchers.base import free_ports
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader, read_attached

pytestmark = pytest.mark.framework("pytorch")
SLEEP_S = 0.1
BUFFERS = "forward:_broadcast_coalesced"
# One job for all: batch norm, of which first rank 0's loader is slow, then rank 1's; a hook to half precision; a group
# that was made without the name of a back end.
SCRIPT = """
import os, time, torch, torch.distributed as dist
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group()
rank = dist.get_rank()
net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
model = nn.parallel.DistributedDataParallel(net)
HOOK
optimizer = torch.optim.SGD(model.parameters(), 0.1)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 72
    def __getitem__(self, i):
        if i % 4 == 0 and rank == SLOW:
            time.sleep(PAUSE)
        return torch.full((8,), float(i)), i % 2

for x, y in torch.utils.data.DataLoader(Slow(), 4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
os.write(1, f"{rank} {loss.item():.9f}\\n".encode())  # in one piece: the other rank writes to the same pipe
time.sleep(1)  # gloo's thread lets go of what a hook of Python held; an interpreter that ends meanwhile aborts
dist.destroy_process_group()
"""
PYTHON_HOOK = (
    "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
    "model.register_comm_hook(None, fp16_compress_hook)"
)
OWN_HOOK = "model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)"


RANKS = """
import os, runpy, sys
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if not ranks[rank]:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="NUMBER")
        runpy.run_path("script.py", run_name="__main__")
        sys.exit()
assert [os.waitpid(each, 0)[1] for each in ranks] == [0, 0]
"""
"""Starts both ranks as torchrun does, with which the scripts of ``test_torch_scripts`` are started."""


def trained(folder, *, attached, **changes):
    """Return what the ranks printed; their records, if attached, are in ``record``."""
    text = SCRIPT
    for name, value in {"HOOK": "", "SLOW": 0, "PAUSE": SLEEP_S, **changes}.items():
        text = text.replace(name, str(value))
    (port,) = free_ports(1)
    (folder / "script.py").write_text(text)
    (folder / "ranks.py").write_text(RANKS.replace("NUMBER", str(port)))
    warm = warm_framework("pytorch", attached=attached)
    printed = (warm.run_attached if attached else warm.run)(folder, "ranks.py")
    return sorted(printed.split("\n"))


def attached(folder, **changes):
    """Return what a job printed, its records as lines, and what is found in them."""
    printed = trained(folder, attached=True, **changes)
    records = folder / "record"
    files = [list(map(json.loads, each.read_text().splitlines())) for each in sorted(records.glob("*.jsonl"))]
    header = AttachedHeader(command=["torchrun"], started_at="", boot="", begin_ns=0, wall_minus_monotonic_ns=0)
    return printed, files, attached_run(header, read_attached(PlainFolder(folder), records))


@pytest.fixture(scope="module", params=[0, 1])
def slow(request, tmp_path_factory):
    hook = (PYTHON_HOOK, OWN_HOOK)[request.param]
    return request.param, *attached(tmp_path_factory.mktemp("slow"), SLOW=request.param, HOOK=hook)


@pytest.mark.sampled
def test_a_rank_that_waits_in_the_broadcast_of_buffers_does_not_compute(slow):
    rank, _, _, run = slow
    parts = {part.name: part for part in run.parts}
    waits, inputs = parts["sync_wait"].ranks_s[1 - rank], parts["input_wait"].ranks_s
    assert inputs[rank] > SLEEP_S
    assert waits == pytest.approx(inputs[rank] - inputs[1 - rank], rel=0.3)
    assert max(parts["forward"].ranks_s) < waits / 2
    assert parts["sync_wait"].ranks_s[rank] < waits / 2
    assert run.waited_for.caused_share > 0.75


@pytest.mark.sampled
def test_a_group_without_a_name_has_that_of_its_tensors_back_end(slow):
    assert slow[3].back_end == "torch.distributed/gloo"


@pytest.mark.sampled
def test_each_forward_has_one_broadcast_of_buffers(slow):
    size = 2 * 8 * 4 + 8  # means and variances, and the number of batches
    for lines in slow[2]:
        steps = [line for line in lines if line["kind"] == "step"]
        assert len(steps) == 18
        assert [step["collectives"][BUFFERS][:2] for step in steps] == [[1, size]] * 18
        assert not [line for line in lines if line["kind"] == "fault"]


@pytest.mark.sampled
def test_losses_are_those_of_the_job_alone(slow, tmp_path):
    rank, printed, _, _ = slow
    if rank == 0:
        assert trained(tmp_path, attached=False, HOOK=PYTHON_HOOK, PAUSE=0.0) == printed


@pytest.mark.sampled
def test_a_hook_to_half_precision_is_on_record_with_what_it_sends(slow):
    for lines in slow[2]:
        (buckets,) = [line for line in lines if line["kind"] == "buckets"]
        assert buckets["hook"] in {"fp16_compress_hook", "BuiltinCommHookType.FP16_COMPRESS"}
        assert sum(buckets["bytes"]) == 2 * buckets["sent_bytes"]
