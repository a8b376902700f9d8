"""The processor time that attach and traceml-ai add to a step of 1, 5 and 50 ms, of one and of two ranks, interleaved.

::

    python benchmarks/attach/peers_cost.py [--python PYTHON_WITH_TORCH] [--rounds 8] [--ranks 1 2]
        [--environment FOLDER]

Each round runs `scripts/steps_of_lengths.py` alone, attached and under traceml-ai (pinned, used as its documentation
asks), in an order of its own: about 12 minutes on two cores, half of it with ``--ranks 1``. A figure is the mean over
rounds of what a run has more than the run alone of its round, with a 95 % interval of Student's t: of all threads of
the ranks, and of their training threads. Processes beside the ranks (traceml-ai's aggregator, attach's own) are in the
time of the whole job alone.
traceml-ai is installed into FOLDER, which is used again where it has it; by default into one that is removed. Writes
`peers_cost.json` whenever a round ends.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cost import interval
from peers import PINNED, environment, timed

from steptime.runner.preparation import ready_interpreter

SCRIPT = Path(__file__).parent / "scripts" / "steps_of_lengths.py"
RESULT = Path(__file__).with_suffix(".json")
PEER = "traceml-ai"
FIGURES = ("all_threads", "training_thread")


def launched(python: Path, ranks: int) -> list[str]:
    """Return the command that starts the script's ranks."""
    return [str(python), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(SCRIPT)]


def attached(python: Path, ranks: int) -> list[str]:
    """Return the command that starts them attached."""
    return [sys.executable, "-m", "steptime", "attach", "-o", "results", "--", *launched(python, ranks)]


def traced(python: Path, ranks: int) -> list[str]:
    """Return the command that starts them under traceml-ai."""
    options = ["--run-name", "cost", f"--nproc-per-node={ranks}"]
    return [str(python.with_name("traceml")), "run", str(SCRIPT), *options]


TOOLS: dict[str, Callable[[Path, int], list[str]]] = {"alone": launched, "steptime": attached, PEER: traced}


def run(tool: str, python: Path, ranks: int, folder: Path) -> dict[str, Any]:
    """Run the script; return processor times of a step, means over ranks, and of the whole job."""
    folder.mkdir()
    _, job_s = timed(TOOLS[tool](python, ranks), folder, {"TOOL": tool, "OUT": str(folder)})
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
    steps = {
        length: {figure: statistics.mean(each[length][at] for each in found) for at, figure in enumerate(FIGURES)}
        for length in found[0]
    }
    return {"job_s": job_s, "steps": steps}


def python_with_peer(python: Path, folder: Path) -> Path:
    """Return the interpreter that has traceml-ai in ``folder``, which is made where there is none."""
    own = folder / PEER / "bin" / "python"
    if own.with_name("traceml").exists():
        return own
    folder.mkdir(parents=True, exist_ok=True)
    return environment(PEER, python, folder)


def measure(pythons: dict[str, Path], folder: Path, rounds: int, counts: list[int]) -> Iterator[list[dict[str, Any]]]:
    """Run every tool with each of ``counts`` of ranks, in turns; yield all runs so far whenever a round ends."""
    chosen = random.Random(0)  # noqa: S311 - an order
    runs = []
    for number in range(rounds):
        for ranks in chosen.sample(counts, len(counts)):
            for tool in chosen.sample(list(TOOLS), len(TOOLS)):
                begin, load = time.monotonic(), round(os.getloadavg()[0], 1)
                found = run(tool, pythons[tool], ranks, folder / f"{number}-{ranks}-{tool}")
                runs.append({"round": number, "ranks": ranks, "tool": tool, "load": load, **found})
                print(f"{number} {ranks} {tool}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
        yield runs


def added(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each tool adds by ranks, length and figure, and to the whole job, as intervals in microseconds."""
    alone = {(each["round"], each["ranks"]): each for each in runs if each["tool"] == "alone"}
    rows = []
    for tool in list(TOOLS)[1:]:
        for ranks in sorted({each["ranks"] for each in runs}):
            own = [each for each in runs if (each["tool"], each["ranks"]) == (tool, ranks)]
            beside = [alone[each["round"], ranks] for each in own]
            for length in own[0]["steps"]:
                for figure in FIGURES:
                    both = zip(own, beside, strict=True)
                    more = [a["steps"][length][figure] - b["steps"][length][figure] for a, b in both]
                    rows.append({"tool": tool, "ranks": ranks, "step": length, "of": figure, **interval(more)})
            job = [a["job_s"] - b["job_s"] for a, b in zip(own, beside, strict=True)]
            rows.append({"tool": tool, "ranks": ranks, "step": None, "of": "whole_job", **interval(job)})
    return rows


def main() -> None:
    """Measure, keep all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--ranks", type=int, nargs="+", choices=[1, 2], default=[1, 2])
    parser.add_argument("--environment", type=Path, default=None)
    options = parser.parse_args()
    python = options.python or ready_interpreter("pytorch")
    if python is None:
        sys.exit("no environment for pytorch: run 'steptime env create pytorch', or name one by --python")
    with tempfile.TemporaryDirectory() as name:
        peer = python_with_peer(Path(python).absolute(), (options.environment or Path(name)).absolute())
        pythons = {tool: peer if tool == PEER else Path(python).absolute() for tool in TOOLS}
        for runs in measure(pythons, Path(name), options.rounds, options.ranks):
            kept = {"peer": PINNED[PEER], "cores": os.cpu_count(), "added": added(runs), "runs": runs}
            RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    for row in kept["added"]:
        bounds = f"{row['mean_us']:.0f} us ({row['low_us']:.0f} to {row['high_us']:.0f})"
        print(f"{row['tool']}, {row['ranks']} rank(s), {row['step'] or 'whole job'}, {row['of']}: {bounds}")


if __name__ == "__main__":
    main()
