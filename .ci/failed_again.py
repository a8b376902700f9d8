"""Try tests that failed beside others once more, one at a time on a machine that does nothing else, and name them.

``python .ci/failed_again.py OPTIONS...``, after a run of pytest in the same folder that ended with failures; OPTIONS
are for pytest. Where three tests and compilers share two cores, a process may not run for seconds, and what fails for
that alone is no reason to refuse a change. It is a defect all the same, of the test or of steptime, which the last line
asks to look for. More than a few failures are a change's own, and none of them is tried again.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 3
"""Tests that may be tried again: of the fifteen thousand, one to three failed in runs that changed nothing."""
FAILED = Path(".pytest_cache/v/cache/lastfailed")
"""Where pytest keeps the tests of its last run that failed."""


def failed_tests() -> list[str]:
    """Return the tests that failed in the last run of pytest in this folder, [] where it kept none."""
    return sorted(json.loads(FAILED.read_text(encoding="utf-8"))) if FAILED.exists() else []


def main(options: Sequence[str]) -> int:
    """Run the tests again and return pytest's exit code, 1 where there are none or too many to be tried again."""
    failed = failed_tests()
    if not 0 < len(failed) <= MOST:
        sys.stdout.write(f"{len(failed)} tests failed; at most {MOST} are tried again by themselves\n")
        return 1
    code = subprocess.run([sys.executable, "-m", "pytest", *options, *failed], check=False).returncode
    if code == 0:
        names = ", ".join(failed)
        sys.stdout.write(
            f"FAILED BESIDE OTHERS, passed alone; find out why the test or steptime depends on it: {names}\n"
        )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
