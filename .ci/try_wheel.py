"""Install a wheel into an empty environment of each Python that it supports and that is here, and run the demo there.

    .venv/bin/python .ci/try_wheel.py [--every] dist/steptime-*.whl

Prints a line for each Python; the exit code is 1 where one failed or none is here, with `--every` where one is not.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from steptime.environments.spec import find_python

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PAGE = Path("steptime-demo") / "four-frameworks" / "report.html"


def try_wheel(python: Path, wheel: Path, folder: Path) -> str:
    """Return what the demo took in an environment that holds the wheel and its dependencies alone.

    Raises CalledProcessError where a command fails, RuntimeError where the demo shows no recorded results.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command: str | Path) -> str:
        return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout

    run(python, "-m", "venv", folder / "env")
    run(folder / "env" / "bin" / "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", wheel)
    began = time.monotonic()
    shown = run(folder / "env" / "bin" / "steptime", "demo")
    took = time.monotonic() - began
    if not (shown.startswith("Recorded on ") and (folder / PAGE).is_file()):
        message = f"no recorded results or no page:\n{shown}"
        raise RuntimeError(message)
    return f"{len(shown.splitlines())} lines and the page after {took:.1f} s"


def main(wheel: Path, *, every: bool = False) -> int:
    """Try ``wheel``; return the exit code: 1 where one failed, or none, or with ``every`` not all, are here."""
    tried, failed = 0, 0
    for version in VERSIONS:
        python = find_python(version)
        said = "not here, not tried"
        if python:
            tried += 1
            try:
                with tempfile.TemporaryDirectory() as folder:
                    said = try_wheel(python, wheel.resolve(), Path(folder))
            except (subprocess.CalledProcessError, RuntimeError) as error:
                failed += 1
                said = f"failed: {error}\n{getattr(error, 'stderr', '')}"
        sys.stdout.write(f"Python {version}: {said}\n")
        sys.stdout.flush()
    return int(bool(failed) or tried < (len(VERSIONS) if every else 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--every", action="store_true")
    arguments = parser.parse_args()
    sys.exit(main(arguments.wheel, every=arguments.every))
