"""What a worker says of its own use of the machine."""

import subprocess
import sys
import time

from steptime.worker.usage import usage, used_since

SMALL = "from steptime.worker.usage import peak_memory_bytes; print(peak_memory_bytes())"


def test_the_memory_of_a_worker_is_not_that_of_the_larger_process_that_started_it():
    large = bytearray(400 << 20)
    large[:: 1 << 12] = b"x" * len(large[:: 1 << 12])  # every page is touched
    peak = int(subprocess.run([sys.executable, "-c", SMALL], check=True, capture_output=True, text=True).stdout)
    assert 5 << 20 < peak < 200 << 20


BUSY = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n"


def test_processor_seconds_of_a_helper_count_while_it_lives():
    before = usage()
    with subprocess.Popen([sys.executable, "-c", BUSY + "time.sleep(60)"]) as helper:
        deadline = time.monotonic() + 30
        while used_since(before)["helpers_cpu_s"] < 0.5 and time.monotonic() < deadline:
            time.sleep(0.05)
        used = used_since(before)
        helper.kill()
    assert 0.5 <= used["helpers_cpu_s"] < 2.0


def test_processor_seconds_of_a_helper_count_after_its_end():
    before = usage()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert 0.5 <= used_since(before)["helpers_cpu_s"] < 2.0


def test_the_memory_of_a_helper_counts_apart_from_that_of_the_worker():
    filled = "x = bytearray(200 << 20); x[:: 1 << 12] = b'x' * len(x[:: 1 << 12]); print(flush=True); input()"
    before = usage()
    with subprocess.Popen(
        [sys.executable, "-c", filled], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as helper:
        assert helper.stdout is not None
        helper.stdout.readline()
        used = used_since(before)
        helper.kill()
    assert 200 << 20 < used["helpers_memory_bytes"] < 300 << 20
