"""Cells and buckets as people and programs read them."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from buckets import Bucket
from judging import GROUPS, HEAD, judge, left_out
from predicting import Cell


def show(cells: Sequence[Cell]) -> None:
    """Print a line for each cell: errors in percent, the first way's prediction in milliseconds."""
    if not cells:
        print("no cell has all that it needs yet: computing alone, the link of two hosts, and its own steps")
        return
    ways = list(cells[0].predicted_s)
    print(f"{'':42} {'measured, ms':>26} " + " ".join(f"{name:>15}" for name in ways))
    for cell in cells:
        what = f"{cell.contestant} {cell.load}, {cell.megabits:g} Mbit/s, {cell.hosts} hosts"
        mark = ("~" if cell.in_turns else " ") + (" " if cell.quiet else "*")
        measured = f"{1e3 * cell.measured_s:.1f} ({1e3 * cell.low_s:.1f} to {1e3 * cell.high_s:.1f})"
        print(f"{what:42} {measured:>26}{mark}" + " ".join(f"{100 * cell.error(name):+15.1f}" for name in ways))
    if any(cell.in_turns for cell in cells):
        print("~ computing measured in turns with these steps, in the same launches")
    if not all(cell.quiet for cell in cells):
        print("* no quiet launch of something that the cell stands on; left out below")


def summarise(cells: Sequence[Cell]) -> None:
    """Print the errors of each way over the quiet cells of each framework, and with groups left out.

    Cells whose computing was measured apart come first, and then those where it was measured in turns with the step.
    """
    for in_turns, how in ((False, "computing measured in other launches"), (True, "computing and steps in turns")):
        chosen = [cell for cell in cells if cell.in_turns == in_turns]
        if chosen:
            print(f"\n{how}")
            _summarise(chosen)


def _summarise(cells: Sequence[Cell]) -> None:
    noisy = [cell for cell in cells if not cell.quiet]
    cells = [cell for cell in cells if cell.quiet]
    for name in dict.fromkeys(cell.contestant for cell in cells):
        own = [cell for cell in cells if cell.contestant == name]
        print(f"\n{name + ': absolute error in percent':44} {HEAD}")
        for way in own[0].predicted_s:
            print(f"  {way:42} {judge(own, way).in_words()}")
        _left_out(own)
    if len({cell.contestant for cell in cells}) > 1:
        print(f"\n{'all: absolute error in percent':44} {HEAD}")
        print(f"  {'steptime':42} {judge(cells, 'steptime').in_words()}")
        _left_out(cells)
    if noisy:
        print(f"\n{'cells that were not quiet':44} {HEAD}")
        print(f"  {'steptime':42} {judge(noisy, 'steptime').in_words()}")


def _left_out(cells: Sequence[Cell]) -> None:
    for by in GROUPS:
        verdict = left_out(cells, by)
        if verdict is not None:
            print(f"  {'steptime, corrected by other ' + _PLURAL[by] + ':':42} {verdict.in_words()}")


_PLURAL = {"workload": "workloads", "bandwidth": "bandwidths", "batch": "batches", "framework": "frameworks"}


def show_buckets(buckets: Sequence[Bucket]) -> None:
    """Print a line for each bucket, and the errors of both ways."""
    if not buckets:
        return
    print(
        f"\n{'buckets: seconds from ready to done':48} {'bytes':>10} {'measured, ms':>13} {'steptime':>9} {'serial':>9}"
    )
    for each in buckets:
        what = f"{each.load}, {each.megabits:g} Mbit/s, {each.hosts} hosts, bucket {each.place + 1}"
        errors = [f"{100 * (one / each.measured_s - 1):+9.1f}" for one in (each.predicted_s, each.serial_s)]
        print(f"{what:48} {each.bytes:10} {1e3 * each.measured_s:13.1f} {' '.join(errors)}")
    several = [each for each in buckets if sum(_same_step(each, other) for other in buckets) > 1]
    for name, chosen in (("all buckets", buckets), ("steps of several", several)):
        if chosen:
            medians = [
                float(np.median([100 * abs(one(each) / each.measured_s - 1) for each in chosen]))
                for one in (lambda each: each.predicted_s, lambda each: each.serial_s)
            ]
            print(f"{name + ': median absolute error in percent':73} {medians[0]:9.1f} {medians[1]:9.1f}")


def _same_step(one: Bucket, other: Bucket) -> bool:
    return (one.load, one.megabits, one.hosts) == (other.load, other.megabits, other.hosts)


def write(folder: Path, cells: Sequence[Cell], buckets: Sequence[Bucket]) -> None:
    """Write cells and buckets as JSON lines and as CSV."""
    for name, rows in (("cells", [cell.row() for cell in cells]), ("buckets", [asdict(each) for each in buckets])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if rows:
            with (folder / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
