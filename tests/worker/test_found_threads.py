"""What a process has of the processor, as it is read back."""

import json
import subprocess
import sys
import threading

from steptime.worker.usage import compute_threads, found_threads


def test_cores_are_those_of_all_threads_and_threads_are_counted_by_name():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    before = found_threads()
    thread.start()
    during = found_threads()
    ended.set()
    thread.join()

    assert during["live_threads"] == before["live_threads"] + 1 == sum(during["thread_names"].values())
    assert during["cores"] == before["cores"] != []


PINNED = """
import json, os, sys, threading
sys.path.insert(0, sys.argv[1])
import numpy
from steptime.worker.usage import compute_threads, found_threads
core = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
found = found_threads()
print(json.dumps([core, found["cores"], sorted(set(found["thread_pools"].values())), compute_threads()]))
"""


def test_pools_have_the_size_that_their_libraries_say(monkeypatch):
    """With numpy's OpenBLAS, which reads the variable when it is loaded."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    said = subprocess.run([sys.executable, "-c", PINNED, sys.path[0]], capture_output=True, text=True, check=True)
    core, cores, pools, threads = json.loads(said.stdout)

    assert (core in cores, pools, threads) == (True, [1], 1)


def test_a_process_whose_libraries_have_no_pool_has_no_number():
    code = "from steptime.worker.usage import compute_threads; print(compute_threads())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "None"
    assert compute_threads() is None or compute_threads() >= 1
