#!/bin/sh
# paddlepaddle 3.3.1: paddle.DataParallel(layer, comm_buffer_size=X) sends a network of less than 1 MiB in one bucket
# for any X, since the bucket of the layers whose gradients come last has a size of its own, last_comm_buffer_size, which is
# filled first and is 1 MiB unless it is given too.
# An experiment on bucket sizes so compares a network with itself; only both arguments together make buckets small.
# Seen: ten layers of 16 KiB in 1 bucket by default, in 1 of 20 KiB, in 6 with last_comm_buffer_size of 20 KiB as well.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet paddlepaddle==3.3.1 setuptools==80.9.0
cat > "$folder/check.py" <<'PY'
import os
import socket
import subprocess
import sys

if len(sys.argv) == 1:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    [each.close() for each in sockets]
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, rank, *ports]) for rank in "01"]
    sys.exit(max(each.wait() for each in ranks))

rank, master, *own = sys.argv[1:]
addresses = ["127.0.0.1:" + port for port in own]
os.environ.update(
    PADDLE_DISTRI_BACKEND="gloo",
    PADDLE_TRAINER_ID=rank,
    PADDLE_TRAINERS_NUM="2",
    PADDLE_MASTER="127.0.0.1:" + master,
    PADDLE_TRAINER_ENDPOINTS=",".join(addresses),
    PADDLE_CURRENT_ENDPOINT=addresses[int(rank)],
    GLOO_SOCKET_IFNAME="lo",
)
import paddle
from paddle import distributed, nn

SMALL = 20 / 1024  # MiB
distributed.init_parallel_env()


def buckets(**sizes):
    network = nn.Sequential(*(nn.Linear(64, 64) for _ in range(10)))
    return len(paddle.DataParallel(network, **sizes).group_indices)


seen = buckets(), buckets(comm_buffer_size=SMALL), buckets(comm_buffer_size=SMALL, last_comm_buffer_size=SMALL)
if rank == "0":
    print("paddle", paddle.__version__, "buckets: %d by default, %d with small ones, %d with a small last one too" % seen)
assert seen[:2] == (1, 1) and seen[2] > 4, seen
distributed.barrier()
distributed.destroy_process_group()
PY
cd "$folder"
venv/bin/python check.py 2> log || { cat log; exit 1; }
