"""Two processes of JAX that train together: which of them the other waits for, and that their losses are their own."""

import os
import re
import subprocess
from socket import create_server

import pytest
from launching import interpreter_for

from steptime.attach.folder import environment, write_hook
from steptime.attached.summary import attached_run
from steptime.plain_file import PlainFolder
from steptime.results.attached_files import AttachedHeader, read_attached
from steptime.results.gpu_windows import RECORDS

pytestmark = pytest.mark.framework("jax")
SLEEP_S = 0.03
SCRIPT = """
import functools, os, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rank = int(sys.argv[1])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, rank)
mesh = Mesh(np.array(jax.devices()), ("d",))
random = np.random.default_rng(rank)
w = {"a": jnp.ones((8, 16)) / 8, "b": jnp.zeros(16), "c": jnp.ones((16, 2)) / 16, "d": jnp.zeros(2)}
w = jax.device_put(w, NamedSharding(mesh, P()))

def loss(w, x):
    return jnp.mean((jnp.tanh(x @ w["a"] + w["b"]) @ w["c"] + w["d"] - 1) ** 2)

@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("d")), out_specs=(P(), P()))
def step(w, x):
    value, gradient = jax.value_and_grad(loss)(w, x)
    mean = jax.lax.pmean(gradient, "d")
    return jax.tree.map(lambda a, b: a - 0.1 * b, w, mean), jax.lax.pmean(value, "d")

for i in range(30):
    if rank == 1:
        time.sleep(PAUSE)
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("d")), random.normal(size=(4, 8)).astype("f4"))
    w, value = step(w, x)
    jax.block_until_ready(value)
os.write(1, f"{rank} {value:.9f}\\n".encode())
"""


def trained(folder, more):
    with create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("PAUSE", str(SLEEP_S)))
    words = [interpreter_for("jax"), script]
    ranks = [
        subprocess.Popen(
            [*words, str(rank), str(port)], env={**os.environ, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in (0, 1)
    ]
    ends = [each.communicate(timeout=200) for each in ranks]
    assert [each.returncode for each in ranks] == [0, 0], ends
    return sorted(re.findall(r"\d \d\.\d{9}", b"".join(out for out, _ in ends).decode()))


def test_a_rank_that_begins_its_steps_late_is_waited_for_and_losses_are_equal_to_the_bit(tmp_path):
    variables = environment(write_hook(tmp_path / "hook"), tmp_path / RECORDS, lines=False, flops=False)
    attached, alone = trained(tmp_path, variables), trained(tmp_path, {})
    assert attached == alone
    assert len(alone) == 2
    header = AttachedHeader(command=["train"], started_at="", boot="", begin_ns=0, wall_minus_monotonic_ns=0)
    run = attached_run(header, read_attached(PlainFolder(tmp_path), tmp_path / RECORDS))
    waits = next(part for part in run.parts if part.name == "sync_wait").ranks_s
    assert run.waited_for.ranks == [1]
    assert waits[0] > SLEEP_S / 2 > waits[1]
