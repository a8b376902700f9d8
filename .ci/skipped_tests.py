"""The last line of a run of tests: which tests were skipped, by reason, and the command that installs what is missing.

``python .ci/skipped_tests.py FILE``; FILE has the reason of each skipped test on a line (pytest's ``--skipped-to``).
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from system_packages import install_command, missing_packages


def summary(reasons: Sequence[str] | None, packages: Sequence[str]) -> str:
    """Return the line; the most frequent reasons come first.

    Args:
        reasons: of each skipped test; None if the tests did not end.
        packages: those of the system that tests could use and that are missing.
    """
    counted = Counter(reasons)
    listed = "; ".join(f"{count} ({reason})" for reason, count in counted.most_common())
    line = f"{counted.total()} tests skipped: {listed}" if counted else "no test skipped"
    if reasons is None:
        line = "the tests did not run to their end"
    return f"{line}. To run more of them, as root: {install_command(packages)}" if packages else line


def main(path: str) -> None:
    """Print the line."""
    file = Path(path)
    reasons = file.read_text(encoding="utf-8").splitlines() if file.exists() else None
    sys.stdout.write(f"{summary(reasons, missing_packages())}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
