#!/bin/sh
# jax 0.10.2 on processors: XLA joins all psums of a step into one all-reduce, whatever their sizes; flags of
# its GPU combiner change nothing.
# Seen: 1 all-reduce of ten psums of 16 MiB; 1 with xla_gpu_all_reduce_combine_threshold_bytes=0; 10 without
# the pass cpu-all-reduce-combiner.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2
cat > "$folder/check.py" <<'PY'
import os
import re
import subprocess
import sys

if len(sys.argv) == 1:
    counts = {}
    for flags in ("", " --xla_gpu_all_reduce_combine_threshold_bytes=0", " --xla_disable_hlo_passes=cpu-all-reduce-combiner"):
        environ = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=2" + flags, JAX_PLATFORMS="cpu")
        counts[flags] = int(subprocess.check_output([sys.executable, __file__, "count"], env=environ))
        print("all-reduces of ten psums of 16 MiB each, XLA_FLAGS%s: %d" % (flags or " as ever", counts[flags]))
    sys.exit(list(counts.values()) != [1, 1, 10])

import jax
from jax import lax, numpy
from jax.sharding import Mesh, PartitionSpec

mesh = Mesh(jax.devices(), ("workers",))


def step(arrays):
    return [lax.psum(place * each, "workers") for place, each in enumerate(arrays, 1)]


arrays = [jax.ShapeDtypeStruct((2048 + place, 2048), numpy.float32) for place in range(10)]
whole = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False))
text = whole.lower(arrays).compile().as_text()
print(len(re.findall(r" all-reduce(?:-start)?\(", text)))
PY
cd "$folder"
venv/bin/python -W ignore check.py
