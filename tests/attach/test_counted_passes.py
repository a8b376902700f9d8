"""Operations counted inside of PyTorch's passes (`attach --flops`), which changes no gradient."""

import pytest
from test_call_flops import recorded
from warm_frameworks import warm_framework

pytestmark = pytest.mark.framework("pytorch")
SCRIPT = """
import hashlib, torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
layers = nn.SiLU(), nn.Mish(), nn.ChannelShuffle(4), nn.RMSNorm(8), nn.GELU(), nn.LayerNorm(8)
def made(layer):
    return nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), layer, nn.Conv2d(16, 4, 3), nn.Flatten(), nn.Linear(144, 1))
nets = nn.ModuleList(map(made, layers))
optimizer = torch.optim.SGD(nets.parameters(), 0.1)
for step in range(7):
    sum(net(torch.randn(8, 4, 8, 8)).square().mean() for net in nets).backward()
    for net in nets:
        bits = b"".join(each.grad.numpy().tobytes() for each in net.parameters())
        print(step, net[1], hashlib.sha1(bits).hexdigest())
    optimizer.step()
    optimizer.zero_grad()
"""


def test_gradients_are_the_same_to_the_last_bit_where_operations_are_counted(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    alone = warm_framework("pytorch", attached=False).run(tmp_path, "script.py")
    assert warm_framework("pytorch", attached=True, flops=True).run_attached(tmp_path, "script.py") == alone != ""
    (line,) = recorded(tmp_path)["flops"]
    assert set(line["operators"]) == {"aten.convolution", "aten.convolution_backward", "aten.addmm", "aten.mm"}
