"""Which share of the core's lines the tests ran, by package; fails under the limits.

The worker half, the makers of datasets and the programs of emulated and remote hosts run in other Pythons, where
nothing counts lines: they are tested by what they train and make.
"""

import io
import json
import sys
from collections import defaultdict
from pathlib import Path

from coverage import Coverage

ALL, EACH = 90.0, 80.0
"""Percent of lines that must be run in all, and in each package."""


def main() -> int:
    """Print the table and return the exit code: 1 under a limit."""
    counted = Coverage()
    counted.combine()
    counted.save()
    target = Path(".coverage.json")
    # A test runs a changed copy of the program, whose files are no part of it.
    counted.json_report(outfile=str(target), ignore_errors=True, include=["src/steptime/*"])
    run: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    for path, found in json.loads(target.read_text())["files"].items():
        inside = Path(path).parts[Path(path).parts.index("steptime") + 1 :]
        package = inside[0] if len(inside) > 1 else "steptime"
        for name in (package, "all"):
            run[name] += found["summary"]["covered_lines"]
            lines[name] += found["summary"]["num_statements"]
    # A package whose code all runs in other Pythons is left with an empty file.
    counted_packages = sorted((name for name in lines if lines[name]), key=lambda name: (name == "all", name))
    shares = {name: 100.0 * run[name] / lines[name] for name in counted_packages}
    text = io.StringIO()
    text.write("lines of the core that tests ran\n")
    for name, share in shares.items():
        text.write(f"  {name:<14}{share:6.1f} % of {lines[name]:,}\n")
    low = [name for name, share in shares.items() if share < (ALL if name == "all" else EACH)]
    text.write(f"too few: {', '.join(low)} (limits: {ALL:.0f} % of all, {EACH:.0f} % of each)\n" if low else "")
    sys.stdout.write(text.getvalue())
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
