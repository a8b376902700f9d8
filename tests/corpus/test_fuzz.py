"""A few mutants of every kind of input, the same ones in every run; ``make fuzz`` feeds thousands."""

import json
import subprocess
import sys
from pathlib import Path


def test_no_mutant_ends_in_a_traceback_a_hang_or_too_much_memory():
    program = Path(__file__).with_name("fuzz.py")
    done = subprocess.run(
        [sys.executable, str(program), "--mutants", "100", "--seed", "1"], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    assert found["failures"] == {}
    assert found["mutants"] == 100
