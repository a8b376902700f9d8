"""What a worker says of its own use of the machine."""

import json
import subprocess
import sys

SMALL = "from steptime.worker.usage import peak_memory_bytes; print(peak_memory_bytes())"


def test_the_memory_of_a_worker_is_not_that_of_the_larger_process_that_started_it():
    large = bytearray(400 << 20)
    large[:: 1 << 12] = b"x" * len(large[:: 1 << 12])  # every page is touched
    peak = int(subprocess.run([sys.executable, "-c", SMALL], check=True, capture_output=True, text=True).stdout)
    assert 5 << 20 < peak < 200 << 20


BUSY = "import time; end = time.process_time() + 0.55\nwhile time.process_time() < end: pass\n"
FILLED = "x = bytearray(200 << 20); x[:: 1 << 12] = b'x' * len(x[:: 1 << 12]); print(flush=True); input()"


def used_by(program: str, **values: str) -> dict[str, float]:
    """Return what ``program`` used, which runs in a process of its own that has no other helpers."""
    begin = (
        "import json, subprocess, sys, time\nfrom steptime.worker.usage import usage, used_since\nbefore = usage()\n"
    )
    begin += "".join(f"{name} = {value!r}\n" for name, value in values.items())
    code = f"{begin}{program}\nprint(json.dumps(used))"
    return json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def test_processor_seconds_of_a_helper_count_while_it_lives():
    program = """
helper = subprocess.Popen([sys.executable, "-c", busy + "time.sleep(60)"])
end = time.monotonic() + 30
while used_since(before)["helpers_cpu_s"] < 0.5 and time.monotonic() < end:
    time.sleep(0.05)
used = used_since(before)
helper.kill()
"""
    assert 0.5 <= used_by(program, busy=BUSY)["helpers_cpu_s"] < 2.0


def test_processor_seconds_of_a_helper_count_after_its_end():
    program = "subprocess.run([sys.executable, '-c', busy], check=True)\nused = used_since(before)"
    assert 0.5 <= used_by(program, busy=BUSY)["helpers_cpu_s"] < 2.0


def test_the_memory_of_a_helper_counts_apart_from_that_of_the_worker():
    program = """
helper = subprocess.Popen([sys.executable, "-c", filled], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
helper.stdout.readline()
used = used_since(before)
helper.kill()
"""
    assert 200 << 20 < used_by(program, filled=FILLED)["helpers_memory_bytes"] < 300 << 20
