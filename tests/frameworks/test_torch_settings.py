"""The settings of the frameworks over torch take effect, as read back from torch, Horovod and DeepSpeed."""

from pathlib import Path
from typing import Any

import pytest
from launching import check_job, launch_ok, printed_in, weight_error
from layer_workloads import every_kind

from steptime.catalog.choices import STRATEGIES
from steptime.catalog.manifest import load_manifests

DDP = """
import os, types
import torch
from steptime.frameworks.pytorch.strategies import STRATEGIES
from steptime.libraries.torch.session import TorchSession

def trained(job, strategy):
    place = types.SimpleNamespace(
        rank=0, workers=1, local_rank=0, interface="lo", nccl_interface="=lo", folder=folder,
        root_port=os.getpid(), root_address="",
    )
    session = TorchSession(job, place, STRATEGIES[strategy])
    for _ in range(4):
        session.step()
    return session
"""


END = """
sys.stdout.flush()
os._exit(0)  # threads of a process group that is still open may abort an ordinary end
"""


def in_pytorch(tmp_path: Path, code: str, **values: Any) -> Any:
    """Train four steps with DDP or FSDP in a process of its own, run ``code`` there, and return what it prints."""
    return printed_in("pytorch", DDP + code + END, folder=str(tmp_path), **values)


def ddp(**options: Any) -> dict[str, Any]:
    return check_job("pytorch", "allreduce", "lenet5", batch=4, options=options)


@pytest.mark.framework("pytorch")
def test_the_forward_pass_of_ddp_exchanges_no_buffers_of_batch_norm(tmp_path):
    """A broadcast in it would count what a rank waits for a slower one as forward; with DDP's default it is there."""
    code = """
def broadcasts():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        session._forward.loss(*next(session._forward.batches)).backward()
    return sum(each.count for each in seen.key_averages() if "broadcast" in each.key)

session = trained(job, "allreduce")
ours = broadcasts()
session._strategy._module.broadcast_buffers = True
print(json.dumps([len(list(session._built.module.buffers())) > 0, ours, broadcasts() > 0]))
"""
    assert in_pytorch(tmp_path, code, job=check_job("pytorch", "allreduce", every_kind(), batch=2)) == [True, 0, True]


OF_GRADIENTS = """
session = trained(job, "allreduce")
gradients = [parameter.grad for parameter in session._built.module.parameters()]
stay = all(gradient is not None for gradient in gradients)
rows = {gradient.untyped_storage().data_ptr() for gradient in gradients} if stay else set()
before = [gradient.data_ptr() for gradient in gradients] if stay else []
session.step()
after = [parameter.grad.data_ptr() for parameter in session._built.module.parameters()] if stay else []
facts = session.facts()
seen = session._strategy._module._get_ddp_logging_data()
print(json.dumps({"stay": stay, "rows": len(rows), "same": before == after, "facts": facts,
                  "buckets": str(seen["rebuilt_bucket_sizes"]).split(",")}))
"""


@pytest.mark.framework("pytorch")
def test_gradients_stay_in_ddps_buckets_with_a_bucket_view(tmp_path):
    """All five layers' gradients lie in one row of memory, in every step the same."""
    found = in_pytorch(tmp_path, OF_GRADIENTS, job=ddp(gradients="bucket_view"))
    assert (found["stay"], found["rows"], found["same"]) == (True, 1, True)
    assert found["facts"]["gradient_as_bucket_view"] is True


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize(("gradients", "batched"), [("copy", False), ("batched_copy", True)])
def test_gradients_are_dropped_where_they_are_copied(tmp_path, gradients, batched):
    found = in_pytorch(tmp_path, OF_GRADIENTS, job=ddp(gradients=gradients))
    assert found["stay"] is False
    assert found["facts"]["batched_grad_copy"] is batched


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize(("bucket_mb", "buckets"), [(25.0, 1), (0.1, 2)])
def test_ddp_makes_the_buckets_that_the_option_asks_for(tmp_path, bucket_mb, buckets):
    """LeNet-5 has 0.24 MiB of gradients, 0.18 of them in its first linear layer."""
    found = in_pytorch(tmp_path, OF_GRADIENTS, job=ddp(bucket_mb=bucket_mb))
    assert len(found["buckets"]) == buckets


@pytest.mark.framework("pytorch")
def test_ddp_knows_that_its_graph_is_static(tmp_path):
    found = in_pytorch(tmp_path, OF_GRADIENTS, job=ddp(static_graph=True))
    assert found["facts"]["static_graph"] is True


@pytest.mark.framework("pytorch")
def test_compressed_gradients_are_those_that_fp16_can_hold(tmp_path):
    code = """
session = trained(job, "allreduce")
loss = session._forward.loss(*next(session._forward.batches))
loss.backward()
held = [parameter.grad for parameter in session._built.module.parameters()]
print(json.dumps(all(torch.equal(each, each.half().float()) for each in held)))
"""
    assert in_pytorch(tmp_path, code, job=ddp(compression="fp16")) is True
    assert in_pytorch(tmp_path, code, job=ddp()) is False


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("update", ["default", "foreach", "fused"])
def test_the_optimizer_works_as_the_option_says(tmp_path, update):
    result = launch_ok(
        tmp_path, check_job("pytorch", "single", "lenet5", steps=1, options={"update": update}), preloaded=True
    )
    assert result.record("session")["facts"]["update"] == update


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize("resharding", ["default", "no"])
def test_fsdp_keeps_its_weights_for_the_backward_pass_where_it_is_told_to(tmp_path, resharding):
    """An mlp in three groups: behind the forward pass their weights are shards again, or still whole."""
    code = """
from torch.distributed.tensor import DTensor
session = trained(job, "fsdp")
loss = session._forward.loss(*next(session._forward.batches))
shards = [isinstance(parameter, DTensor) for parameter in session._built.module.parameters()]
print(json.dumps([session._strategy.facts()["sharded_groups"], sorted(set(shards))]))
"""
    options = {"group_values": 100_000, "reshard_after_forward": resharding}
    job = check_job("pytorch", "fsdp", "mlp", batch=4, options=options)
    assert in_pytorch(tmp_path, code, job=job) == [3, [resharding == "default"]]


@pytest.mark.framework("pytorch")
def test_fsdps_policy_gathers_weights_in_bf16(tmp_path):
    code = """
session = trained(job, "fsdp")
loss = session._forward.loss(*next(session._forward.batches))
types = sorted({str(parameter.dtype) for parameter in session._built.module.parameters()})
print(json.dumps([types, str(session.probe_precision()["matrix products"][1])]))
"""
    options = {"mixed_precision": "policy", "reshard_after_forward": "no", "group_values": 100_000}
    job = check_job("pytorch", "fsdp", "mlp", batch=4, precision="bf16", options=options)
    assert in_pytorch(tmp_path, code, job=job) == [["torch.bfloat16"], "torch.bfloat16"]


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize(
    ("lost", "package"),
    [("shutil.which = lambda name: None", "g++"), ("sysconfig.get_path = lambda name: '/none'", "-dev")],
    ids=["compiler", "headers"],
)
def test_a_compile_that_this_machine_cannot_do_is_refused_with_what_to_install(tmp_path, lost, package):
    code = f"""
import shutil, sysconfig
{lost}
from steptime.libraries.torch.compilation import Compilation
try:
    Compilation(job, "cpu")
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
    job = check_job("pytorch", "single", "lenet5", options={"compile": "yes"})
    assert package in in_pytorch(tmp_path, code, job=job).partition("; fix: apt-get install ")[2]


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize(("device", "compiled"), [("cpu", False), ("cuda", True)])
def test_auto_compiles_where_it_was_found_to_pay(tmp_path, device, compiled):
    code = """
from steptime.libraries.torch.compilation import Compilation
print(json.dumps(Compilation(job, device).facts()["compile"]))
"""
    job = check_job("pytorch", "single", "lenet5", options={"compile": "auto"})
    assert in_pytorch(tmp_path, code, job=job, device=device) is compiled


@pytest.mark.framework("pytorch")
@pytest.mark.parametrize(
    ("lost", "package"),
    [("shutil.which = lambda _: None", "gcc"), ("sysconfig.get_path = lambda _: '/nowhere'", "dev")],
    ids=["compiler", "headers"],
)
def test_auto_leaves_compiling_for_a_device_out_where_the_machine_cannot_and_says_why(tmp_path, lost, package):
    code = f"""
import shutil, sysconfig
{lost}
from steptime.libraries.torch.compilation import Compilation
print(json.dumps(Compilation(job, "cuda").facts()))
"""
    job = check_job("pytorch", "single", "lenet5", options={"compile": "auto"})
    facts = in_pytorch(tmp_path, code, job=job)
    assert facts["compile"] is False
    assert package in facts["compile_left_out"]


@pytest.mark.framework("horovod_pytorch")
@pytest.mark.parametrize(("groups", "messages"), [(0, 0), (2, 2)])
def test_horovod_groups_gradients_as_the_option_says(tmp_path, groups, messages):
    job = check_job("horovod_pytorch", "allreduce", "lenet5", workers=2, steps=2, options={"groups": groups})
    result = launch_ok(tmp_path, job, workers=2, preloaded=True)
    assert result.record("session")["facts"]["grouped_messages"] == messages


@pytest.mark.framework("deepspeed")
@pytest.mark.parametrize("on", [True, False])
def test_the_engine_of_deepspeed_has_the_settings_of_the_options(tmp_path, on):
    options = {"overlap_comm": on, "contiguous_gradients": on, "bucket_values": 1000}
    job = check_job("deepspeed", "zero2", "lenet5", steps=1, options=options)
    facts = launch_ok(tmp_path, job, preloaded=True).record("session")["facts"]
    found = {name: facts[name] for name in options}
    assert found == options


TUNED: list[tuple[str, str, dict[str, Any]]] = [
    (name, strategy, load_manifests()[name].tier_options("tuned", strategy, "cpu"))
    for name in ("pytorch", "horovod_pytorch", "deepspeed")
    for strategy in load_manifests()[name].strategies
    if strategy not in {"single", "ps_async"}
]
BESIDE: list[tuple[str, str, dict[str, Any]]] = [
    ("pytorch", "allreduce", {"gradients": "bucket_view", "bucket_mb": 0.1}),
    ("horovod_pytorch", "allreduce", {"groups": 2}),
    ("deepspeed", "zero2", {"overlap_comm": False, "contiguous_gradients": False}),
]


@pytest.mark.sampled("name", "strategy")
@pytest.mark.parametrize(
    ("name", "strategy", "options"),
    [
        pytest.param(*each, marks=pytest.mark.framework(each[0]), id=f"{each[0]}-{each[1]}-{number}")
        for number, each in enumerate(TUNED + BESIDE)
    ],
)
def test_settings_change_nothing_that_is_computed(tmp_path, name, strategy, options):
    """Two workers have the weights of one process that computes from both batches, with momentum and decay on."""
    how: dict[str, Any] = {"batch": 8, "steps": 4, "optimizer": {"learning_rate": 0.02, "weight_decay": 0.01}}
    oracle = check_job("reference", "single", "lenet5", options={"shards": 2}, **how)
    expected = launch_ok(tmp_path, oracle, preloaded=True).weights[0]
    job = check_job(name, strategy, "lenet5", workers=2, options=options, **how)
    result = launch_ok(tmp_path, job, workers=2, servers=int(STRATEGIES[strategy].servers), preloaded=True)
    assert max(weight_error(found, expected)[0] for found in result.weights.values()) < 1e-4
