#!/bin/sh
# ray 2.60.0: a task (and so a worker of Ray Train) runs at niceness 15, whatever niceness its driver has. Alone it is
# as fast as a plain process; beside one on the same core it gets about a twentieth of that one's time, not the half.
# Seen on a busy machine: niceness 15 in a task of a driver at niceness 0; on a core that a plain process shared for 3 s
# the task computed for 0.05 s and the process for 0.97 s; with RAY_worker_niceness=0 for 0.53 s and 0.55 s.
# One would guess that a task is scheduled as a process that the user had started, so that a training under Ray and
# one under torchrun on the same busy machine may be compared.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ray==2.60.0
cat > "$folder/check.py" <<'PY'
import os
import subprocess
import sys
import time

import ray

SECONDS = 3.0
LOOP = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    pass
print(time.process_time())
"""


def compute(core, seconds):
    """Compute on one core for so long; return the niceness and the processor time that it got."""
    os.sched_setaffinity(0, {core})
    begin, end = time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return os.getpriority(os.PRIO_PROCESS, 0), time.process_time() - begin


core = min(os.sched_getaffinity(0))
ray.init(num_cpus=1, include_dashboard=False, logging_level="error")
task = ray.remote(compute)
ray.get(task.remote(core, 0.0))  # Its worker is there.
plain = subprocess.Popen([sys.executable, "-c", LOOP, str(core), str(SECONDS)], stdout=subprocess.PIPE, text=True)
niceness, of_task = ray.get(task.remote(core, SECONDS))
of_plain = float(plain.communicate()[0])
print(
    "ray", ray.__version__, "driver at niceness", os.getpriority(os.PRIO_PROCESS, 0), "task at", niceness,
    f"task {of_task:.2f} s, plain process {of_plain:.2f} s, share {of_task / (of_task + of_plain):.3f}",
)
share = of_task / (of_task + of_plain)
expected = niceness == 0 and share > 0.3 if "RAY_worker_niceness" in os.environ else niceness == 15 and share < 0.15
sys.exit(not expected)
PY
cd "$folder"
export RAY_USAGE_STATS_ENABLED=0
venv/bin/python -W ignore check.py
RAY_worker_niceness=0 venv/bin/python -W ignore check.py
