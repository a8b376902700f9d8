#!/bin/sh
# jax 0.10.2 on processors, two processes, gloo: whether a call waits for the other process depends on the size of the
# program around the all-reduce.
# A program that only sums its input is run by the calling thread: the call returns when the other process has come.
# With one small matrix product more, the call returns at once, and the wait moves to where the result is asked for.
# So a timer around the call shows the straggler of one script and misses that of another that exchanges the same.
# Seen, process 1 being 0.3 s late: 0.301 s in the call without a product; 0.0001 s in the call and 0.301 s behind it
# with one.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 numpy==2.4.6
cat > "$folder/check.py" <<'PY'
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LATE_S = 0.3
rank = int(sys.argv[1])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, rank)
mesh = Mesh(np.array(jax.devices()), ("d",))
split = NamedSharding(mesh, PartitionSpec("d"))
values = jax.make_array_from_process_local_data(split, np.ones((4, 64), np.float32))


def timed(products):
    """Return the seconds in a call, and from its return to its result, where process 1 comes late."""

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=PartitionSpec("d"), out_specs=PartitionSpec())
    def mean(values):
        for _ in range(products):
            values = jnp.sin(values) @ jnp.ones((64, 64)) / 64
        return jax.lax.pmean(values.sum(), "d")

    for _ in range(2):
        mean(values).block_until_ready()
    if rank == 1:
        time.sleep(LATE_S)
    begin = time.perf_counter()
    result = mean(values)
    called = time.perf_counter()
    result.block_until_ready()
    return called - begin, time.perf_counter() - called


small, larger = timed(0), timed(1)
if rank == 0:
    print("jax", jax.__version__, "no product: %.4f s in the call, %.4f s behind it;" % small, "one product: %.4f s, %.4f s" % larger)
    assert small[0] > LATE_S / 2 > small[1], small
    assert larger[1] > LATE_S / 2 > larger[0], larger
PY
cd "$folder"
port=$(venv/bin/python -c "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])")
venv/bin/python check.py 1 "$port" 2> late.log &
venv/bin/python check.py 0 "$port" 2> first.log || { cat first.log; exit 1; }
wait
