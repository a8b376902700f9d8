"""Sweeps of public scripts: the forecast from 1 and 2 workers beside the 4 that were measured.

    python benchmarks/attach/sweeps.py FOLDER... > benchmarks/attach/sweeps.csv

Each folder is that of ``steptime sweep --counts 1,2,4``. The forecast never sees the runs of 4 workers; where it is
refused, the reason is the row's; ``without_cores`` is what it is of the same runs were their cores not known. Scripts
and versions: nanoGPT's ``train.py`` (two lines changed for a processor), timm 1.0.31's ``train.py`` (``device_ids``
left out, which DDP refuses on a processor), accelerate 1.15's ``cv_example.py``, Lightning 2.6.6's ``autoencoder.py``
(Lightning's own made-up MNIST) and Fabric's ``image_classifier``, as they are. PyTorch 2.13 on two cores, which four
workers share.
"""

import csv
import sys
from dataclasses import replace
from pathlib import Path

from steptime.results.json_form import Interval
from steptime.results.store import Store
from steptime.scaling.sweep_answer import SweepCurve, SweepOptions, sweep_curve
from steptime.sweep.answer import runs_of
from steptime.sweep.plan import STORED, plan_of

FIT = 2
"""The most workers that a forecast sees."""
COLUMNS = [
    "script",
    "kind",
    "runs",
    "steps",
    "measured_4_s",
    "low",
    "high",
    "forecast_4_s",
    "forecast_low",
    "forecast_high",
    "inside",
    "cores",
    "busy_threads",
    "without_cores_s",
    "without_cores_low",
    "without_cores_high",
    "knees",
    "next_counts",
    "refused",
    "foreign_cores",
]


def _step_of(curve: SweepCurve, workers: int) -> Interval | None:
    return next((each.step_s for each in curve.forecast if each.workers == workers), None)


def main() -> None:
    """Print a row for each sweep."""
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for folder in map(Path, sys.argv[1:]):
        store = Store.open(folder)
        plan = plan_of(store.get(STORED) or {}, folder)
        swept = [runs for each in plan.settings if (runs := runs_of(plan, store, each)[0])]
        whole = sweep_curve("", swept, SweepOptions())
        fewer = [runs for runs in swept if runs.workers <= FIT]
        options = SweepOptions(kind=whole.kind)
        few = sweep_curve("", fewer, options)
        without = sweep_curve("", [replace(runs, on_cores=None) for runs in fewer], options)
        places = [runs.on_cores for runs in fewer if runs.on_cores is not None]
        busy_threads = [place.busy_threads for place in places if place.busy_threads is not None]
        last = whole.points[-1]
        found, before = (_step_of(curve, last.workers) for curve in (few, without))
        busy = [runs.foreign_cores for runs in swept if runs.foreign_cores is not None]
        writer.writerow(
            {
                "script": folder.name,
                "kind": f"{whole.kind} ({whole.kind_from})",
                "runs": " ".join(f"{each.runs}" for each in whole.points),
                "steps": " ".join(f"{each.steps}" for each in whole.points),
                "measured_4_s": f"{last.step_s.value:.4g}",
                "low": f"{last.step_s.low:.4g}" if last.step_s.low else "",
                "high": f"{last.step_s.high:.4g}" if last.step_s.high else "",
                "forecast_4_s": f"{found.value:.4g}" if found else "",
                "forecast_low": f"{found.low:.4g}" if found else "",
                "forecast_high": f"{found.high:.4g}" if found else "",
                "inside": "" if found is None else "yes" if found.low <= last.step_s.value <= found.high else "no",
                "cores": f"{places[-1].cores:g}" if places and places[-1].cores else "",
                "busy_threads": f"{max(busy_threads):.2f}" if busy_threads else "",
                "without_cores_s": f"{before.value:.4g}" if before else "",
                "without_cores_low": f"{before.low:.4g}" if before else "",
                "without_cores_high": f"{before.high:.4g}" if before else "",
                "knees": "; ".join(str(knee.get("sentence") or knee) for knee in few.knees or []),
                "next_counts": " ".join(map(str, few.next.workers)) if few.next else "",
                "refused": few.no_forecast or "",
                "foreign_cores": f"{max(busy):.2g}" if busy else "",
            }
        )


if __name__ == "__main__":
    main()
