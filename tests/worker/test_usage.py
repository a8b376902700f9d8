"""What a worker says of its own use of the machine."""

import subprocess
import sys

SMALL = "from steptime.worker.timing import _peak_memory_bytes; print(_peak_memory_bytes())"


def test_the_memory_of_a_worker_is_not_that_of_the_larger_process_that_started_it():
    large = bytearray(400 << 20)
    large[:: 1 << 12] = b"x" * len(large[:: 1 << 12])  # every page is touched
    peak = int(subprocess.run([sys.executable, "-c", SMALL], check=True, capture_output=True, text=True).stdout)
    assert 5 << 20 < peak < 200 << 20
