"""What it costs to keep the losses of some timed steps: blocks of steps with and without it in turn, in one process.

::

    python benchmarks/equivalence/kept_losses_cost.py [OUT.json] [--frameworks pytorch mxnet]

In every second block the loss of *every* step is kept, so that the difference can be seen at all; timed launches keep
those of one step in a dozen at first, and ever fewer. Each framework trains LeNet-5 on digits with one worker.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from configurations import Bench, installed
from planted_timed import Timed

from planted import planted_manifest
from steptime.catalog.workloads.table import build_workload
from steptime.execution.jobs import TimingSchedule, timing_job

_HERE = Path(__file__).parent
_SCHEDULE = TimingSchedule(warmup_steps=5, seconds=0.1, min_steps=1, max_steps=100)


def measure(timed: Timed, framework: str) -> dict[str, Any]:
    """Return medians over blocks of one framework, in seconds; ``kept`` and ``not_kept`` are means of a step."""
    trial = timed.trial(framework, "single", 1)
    workload = build_workload(trial.workload, trial.input_shape, trial.classes)
    job = timing_job(trial, workload, timed.loader(trial), _SCHEDULE)
    executor = timed.bench.executor
    with tempfile.TemporaryDirectory(prefix="cost-") as name:
        folder = Path(name)
        planted = planted_manifest(executor.manifests[framework], "none", folder, "kept_losses_cost_adapter.py")
        measuring = replace(executor, manifests={**executor.manifests, framework: planted})
        ran = measuring.launch(trial, job, folder / "launch")
        if ran.reason:
            return {"framework": framework, "failed": ran.reason}
        blocks = json.loads((folder / "launch" / "cost.json").read_text())
    ratios = sorted(with_it / without for with_it, without in zip(blocks["kept"], blocks["not_kept"], strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    step = statistics.median(blocks["not_kept"])
    call = statistics.median(blocks["calls"])
    return {
        "framework": framework,
        "blocks": len(ratios),
        "step_s": step,
        "ratio_if_every_step_is_kept": statistics.median(ratios),
        "quartiles": [low, high],
        "call_s": call,
        "share_of_400_steps": 6 * call / (400 * step),  # those kept are 1, 8, 24, 64, 160 and 400
    }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=_HERE / "kept-losses-cost.json")
    parser.add_argument("--frameworks", nargs="+", default=installed())
    arguments = parser.parse_args()
    timed = Timed(Bench(arguments.frameworks))
    found = []
    for framework in arguments.frameworks:
        found.append(measure(timed, framework))
        sys.stdout.write(f"{found[-1]}\n")
        sys.stdout.flush()
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
