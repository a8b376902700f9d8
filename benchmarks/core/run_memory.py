"""Peak memory of the core process while it runs a study.

::

    python benchmarks/core/run_memory.py

Two real studies of the reference framework: four trials of LeNet-5, ten launches each, all in fresh processes; and
ResNet-50, whose 23.5 million weights the equivalence check compares, with nothing in its cache. Only the memory of
steptime's own process counts, not that of the workers or of anything else that it starts. It is read from the
kernel's high-water mark by the process itself at its very end, and every few milliseconds from outside, to tell the
launches from the report that follows them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_BYTES = 200 * 10**6
LAUNCHES = """\
version: 1
name: memory
workloads: {name: lenet5, batch_per_worker: 8}
frameworks: reference
strategies: [single, allreduce]
loaders: synthetic
workers: [1, 2, 3, 4]
exclude:
  - {strategies: single, workers: [2, 3, 4]}
  - {strategies: allreduce, workers: 1}
launches: {min: 10, max: 10}
seconds_per_launch: 0.5
steps: {warmup: 2, min: 100, max: 2000}
"""
WEIGHTS = """\
version: 1
name: memory
workloads: {name: resnet50, image: 64, classes: 10, batch_per_worker: 2}
frameworks: reference
strategies: [single, allreduce]
loaders: synthetic
workers: [1, 2]
exclude:
  - {strategies: single, workers: 2}
  - {strategies: allreduce, workers: 1}
launches: {min: 1, max: 1}
seconds_per_launch: 0.5
steps: {warmup: 1, min: 2, max: 2}
equivalence: {steps: 2, repeats: 1}
"""
STUDIES = {"forty launches of lenet5": LAUNCHES, "equivalence check of resnet50": WEIGHTS}
# The program as it is, which tells its own peak when it ends: no sampling can miss the last moments.
PROGRAM = """\
import atexit, sys
path = sys.argv.pop(1)
@atexit.register
def tell():
    lines = open("/proc/self/status").read().splitlines()
    open(path, "w").write(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
from steptime.cli.app import main
main()
"""
SAMPLE_S = 0.005


def resident_bytes(pid: int) -> int:
    """Return the memory of a process now, 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except (OSError, IndexError):
        return 0


def measure(name: str, folder: Path) -> dict[str, object]:
    """Run a study in ``folder`` and return what it took."""
    (folder / "memory.yaml").write_text(STUDIES[name])
    peak = folder / "peak"
    command = [sys.executable, "-c", PROGRAM, str(peak), "run", "memory.yaml", "-o", "results"]
    environment = {**os.environ, "STEPTIME_CACHE": str(folder / "cache")}
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        samples = []
        while process.poll() is None:
            samples.append((time.time(), resident_bytes(process.pid)))
            time.sleep(SAMPLE_S)
    if process.returncode:
        message = f"the study ended with exit code {process.returncode}:\n{(folder / 'said').read_text()}"
        raise RuntimeError(message)
    records = list(folder.glob("results/trials/*/records.jsonl"))
    raced_until = max(path.stat().st_mtime for path in records)
    peak_bytes = int(peak.read_text()) * 1024
    return {
        "study": name,
        "launches": sum(len(path.read_text().splitlines()) for path in records),
        "trials": len(records),
        "peak_bytes": peak_bytes,
        "peak_until_last_launch_bytes": max(bytes_ for moment, bytes_ in samples if moment <= raced_until),
        "limit_bytes": LIMIT_BYTES,
        "within_limit": peak_bytes < LIMIT_BYTES,
        "wall_s": samples[-1][0] - samples[0][0],
    }


def main() -> int:
    """Measure and print; the exit code is 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", help=f"some of: {', '.join(STUDIES)} (default: all)")
    results = []
    for name in parser.parse_args().studies or STUDIES:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(name, Path(folder)))
    print(json.dumps({"benchmark": "memory of the core process during steptime run", "results": results}, indent=1))
    return 0 if all(result["within_limit"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
