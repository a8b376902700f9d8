"""Attention in real PyTorch that no class is named for: it is known by the graph of a forward."""

import json

import pytest
from warm_frameworks import warm_framework

pytestmark = pytest.mark.framework("pytorch")
SCRIPT = """
import torch

torch.set_num_threads(1)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(16, 16) for _ in range(3))

    def heads(self, x):
        return x.view(2, 6, 4, 4).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        return (MIXED).transpose(1, 2).flatten(2)

net = Block()
optimizer = torch.optim.SGD(net.parameters(), 1e-2)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.randn(2, 6, 16)).mean().backward()
    optimizer.step()
"""
MIXED = {
    "scaled_dot_product_attention": (True, "torch.nn.functional.scaled_dot_product_attention(q, k, v)"),
    "causal by hand": (
        True,
        "(q @ k.mT / 2).masked_fill(torch.ones(6, 6).triu(1).bool(), -1e9).softmax(-1) @ v",
    ),
    "einsum with dropout": (
        True,
        (
            "torch.einsum('nqk,nkd->nqd', torch.dropout(torch.einsum('nqd,nkd->nqk', "
            "q.flatten(0, 1), k.flatten(0, 1)).softmax(-1), 0.1, True), v.flatten(0, 1)).view(2, 4, 6, 4)"
        ),
    ),
    "three dimensions": (
        True,
        "torch.bmm(torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).softmax(-1), v.flatten(0, 1)).view(2, 4, 6, 4)",
    ),
    "a softmax of one product": (False, "(q @ k.mT @ v).softmax(-1)"),
    "products without a softmax": (False, "(q @ k.mT).relu() @ v"),
}


@pytest.mark.parametrize("name", MIXED)
def test_attention_is_known_by_the_graph_of_a_forward(tmp_path, name):
    expected, mixed = MIXED[name]
    (tmp_path / "script.py").write_text(SCRIPT.replace("MIXED", mixed))
    warm_framework("pytorch", attached=True).run_attached(tmp_path, "script.py")
    (path,) = (tmp_path / "record").glob("*.jsonl")
    lines = list(map(json.loads, path.read_text().splitlines()))
    weights = [line for line in lines if line["kind"] == "weights"]
    assert weights
    assert {line.get("attention", False) for line in weights} == {expected}
    assert [line for line in lines if line["kind"] == "fault"] == []
