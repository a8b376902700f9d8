"""Scripts with DeepSpeed's engine: what attach tells of settings that the script does not name."""

from types import SimpleNamespace

import pytest
from alone_and_attached import record_of

from steptime.attach.pytorch.extensions import clipping_unasked

pytestmark = pytest.mark.framework("deepspeed")

TRAINING = """
import os
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
import logging, torch
logging.disable(logging.WARNING)
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
net = torch.nn.Linear(8, 2)
settings = dict(train_micro_batch_size_per_gpu=4, zero_allow_untested_optimizer=True, zero_optimization={"stage": 2})
settings.update(MORE)
engine, *_ = deepspeed.initialize(
    model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1), config=settings, dist_init_required=False
)
for _ in range(4):
    engine.backward(engine(torch.randn(4, 8)).pow(2).mean())
    engine.step()
print("weights", net.weight.sum().item())
"""


@pytest.mark.parametrize(("more", "clips"), [("", True), ("gradient_clipping=0.0", False)], ids=["default", "ended"])
def test_clipping_that_no_setting_asks_for_is_named(tmp_path, more, clips):
    lines = record_of(tmp_path, "deepspeed", TRAINING.replace("MORE", more))
    notes = [line["text"] for line in lines if line["kind"] == "note"]
    expected = ["DeepSpeed clips gradients to a norm of 1 by its default"] if clips else []
    assert [note.partition(";")[0] for note in notes] == expected


@pytest.mark.parametrize("settings", [{"gradient_clipping": 1.0}, {"gradient_clipping": 0.0}, None, "settings.json"])
def test_nothing_is_told_where_the_settings_name_it_or_are_not_known(settings):
    engine = SimpleNamespace(_config=SimpleNamespace(_param_dict=settings), gradient_clipping=lambda: 1.0)
    assert clipping_unasked(engine) == ""


@pytest.mark.parametrize("norm", [0.0, None])
def test_an_engine_that_does_not_clip_is_not_named(norm):
    engine = SimpleNamespace(_config=SimpleNamespace(_param_dict={}), gradient_clipping=lambda: norm)
    assert clipping_unasked(engine) == ""
