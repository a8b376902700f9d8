"""PyTorch's parameter servers: who holds what, when weights are updated, and how everything ends."""

from pathlib import Path
from typing import Any

import pytest
from killing import survivors_of
from launching import check_job, launch_ok, printed_in, timing_job, weight_error

from steptime.catalog.workloads.layers import Network, Workload

pytestmark = pytest.mark.framework("pytorch")

SETTINGS = {"learning_rate": 0.05, "momentum": 0.8, "weight_decay": 0.01}
ENDLESS = 1_000_000


def images() -> Workload:
    """A small network with everything that a row of values can hold, also filters whose channels lie innermost."""
    net = Network((3, 6, 5))
    x = net.batch_norm("norm", net.conv2d("grouped", net.input, 6, (3, 2), groups=3))
    x = net.tanh("tanh", net.conv2d("single", x, 4, 1, bias=False))
    net.linear("output", net.flatten("flatten", x), 5)
    return net.finish("images", classes=5)


@pytest.mark.parametrize(
    ("workers", "servers", "options", "further"),
    [
        (2, 2, {"sharding": "balanced", "channels_last": "yes"}, {}),
        (3, 1, {"sharding": "balanced", "channels_last": "no"}, {}),
        (1, 3, {"sharding": "round_robin", "channels_last": "yes"}, {}),
        (2, 3, {"sharding": "balanced", "channels_last": "no"}, {"clip_norm": 0.1}),
    ],
)
def test_synchronous_servers_give_the_weights_of_the_oracle(
    tmp_path: Path, workers: int, servers: int, options: dict[str, str], further: dict[str, float]
) -> None:
    """However many workers and servers there are, and wherever the weights lie; the whole mean gradient is clipped."""
    how: dict[str, Any] = {"batch": 4, "steps": 4, "optimizer": {**SETTINGS, **further}}
    oracle = check_job("reference", "single", images(), options={"shards": workers}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job("pytorch", "ps_sync", images(), workers=workers, options=options, **how)
    result = launch_ok(tmp_path, job, workers=workers, servers=servers, preloaded=True)
    assert sorted(result.weights) == list(range(workers))
    assert max(weight_error(weights, expected)[0] for weights in result.weights.values()) < 1e-4


def test_one_worker_that_pushes_freely_trains_as_if_it_were_alone(tmp_path: Path) -> None:
    """And is never late."""
    how: dict[str, Any] = {"batch": 4, "steps": 4, "optimizer": SETTINGS}
    expected = launch_ok(tmp_path, check_job("reference", "single", images(), **how), preloaded=True).weights[0]
    job = check_job("pytorch", "ps_async", images(), **how)
    result = launch_ok(tmp_path, job, servers=2, preloaded=True)
    assert weight_error(result.weights[0], expected)[0] < 1e-4


def test_every_update_of_the_timed_steps_has_a_staleness(tmp_path: Path) -> None:
    """The step that lines the workers up is one of them; nothing is complained about."""
    job = timing_job("pytorch", "ps_async", images(), workers=2, steps=30)
    result = launch_ok(tmp_path, job, workers=2, servers=2, preloaded=True)
    for rank in range(2):
        assert sum(result.record("steps", f"worker-{rank}")["staleness"].values()) == 31
    assert set(result.stderr.values()) == {""}


def test_workers_in_step_have_no_staleness(tmp_path: Path) -> None:
    """Not even one of 0."""
    job = timing_job("pytorch", "ps_sync", images(), workers=2, steps=3)
    result = launch_ok(tmp_path, job, workers=2, servers=1, preloaded=True)
    assert result.record("steps")["staleness"] is None
    assert set(result.stderr.values()) == {""}


def test_a_free_server_counts_what_others_did_since_a_worker_pulled() -> None:
    """Its own update is not one of them; what was given out does not change later."""
    code = """
import torch
from types import SimpleNamespace
from steptime.frameworks.pytorch.parameter_server import AsynchronousShard
settings = {"name": "sgd", "learning_rate": 1.0, "momentum": 0.5, "weight_decay": 0.0}
piece = AsynchronousShard(torch.zeros(2), lambda row: [row], settings, "default", SimpleNamespace(workers=3, servers=1))
answers = [piece.take(worker, torch.full((2,), -1.0)).value() for worker in (0, 1, 1, 2, 0)]
print(json.dumps([[late for _, late in answers], [weights[0].item() for weights, _ in answers]]))
"""
    staleness, weights = printed_in("pytorch", code)
    assert staleness == [0, 1, 0, 3, 3]
    assert weights == [1.0, 2.5, 4.25, 6.125, 8.0625]


def test_an_agreed_server_updates_once_with_the_average() -> None:
    """When the last worker's gradient has come, and not before; decay counts once."""
    code = """
import torch
from types import SimpleNamespace
from steptime.frameworks.pytorch.parameter_server import SynchronousShard
settings = {"name": "sgd", "learning_rate": 0.5, "momentum": 0.0, "weight_decay": 0.1}
piece = SynchronousShard(torch.ones(2), lambda row: [row], settings, "default", SimpleNamespace(workers=2, servers=1))
first = piece.take(0, torch.full((2,), 1.0))
waited = not first.done()
second = piece.take(1, torch.full((2,), 3.0))
print(json.dumps([waited, first.value()[0][0].item(), second.value()[0][0].item()]))
"""
    waited, *weights = printed_in("pytorch", code)
    assert waited
    assert weights == pytest.approx([1 - 0.5 * (2 + 0.1)] * 2)


@pytest.mark.parametrize("sharding", ["balanced", "round_robin"])
def test_every_parameter_has_one_server(sharding: str) -> None:
    """Balanced, no server holds more than a fair share and the largest parameter; a view is not a copy."""
    code = """
import torch
from steptime.frameworks.pytorch.communication import ServerShards
pieces = ServerShards(layers, 3, sharding, innermost=True)
rows = [torch.arange(float(size)) for size in pieces.sizes]
views = [pieces.views(server, row) for server, row in enumerate(rows)]
inside = all(
    sorted(torch.cat([view.flatten() for view in own.values()]).tolist()) == row.tolist()
    and all(view.untyped_storage().data_ptr() == row.data_ptr() for view in own.values())
    for own, row in zip(views, rows)
)
print(json.dumps([inside, [{name: list(view.shape) for name, view in own.items()} for own in views], pieces.sizes]))
"""
    workload = images().to_json()
    inside, held, sizes = printed_in("pytorch", code, layers=workload["layers"], sharding=sharding)
    shapes = {each["name"]: each["shape"] for layer in workload["layers"] for each in layer["parameters"]}
    assert inside
    assert sum(map(len, held)) == len(shapes)
    assert {name: shape for own in held for name, shape in own.items()} == shapes
    assert sharding != "balanced" or max(sizes) <= sum(sizes) / 3 + 320


@pytest.mark.costly
@pytest.mark.parametrize(("strategy", "victim"), [("ps_sync", "worker-1"), ("ps_async", "server-0")])
def test_a_killed_process_ends_the_launch(tmp_path: Path, strategy: str, victim: str) -> None:
    """Whether others wait for it, or it for others."""
    job = timing_job("pytorch", strategy, images(), workers=2, warmup_steps=ENDLESS)
    assert survivors_of(tmp_path, job, victim, workers=2, servers=2) == []
