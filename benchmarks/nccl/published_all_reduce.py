"""Predicted NCCL all-reduce times beside published results of nccl-tests: by the catalogue of links alone, and fitted.

``published.csv`` has the times and ``systems.csv`` the hosts, devices, links and sources. ``believed`` is a prediction
from the names of device and card alone. ``fitted`` fits latency and rate to every second size and predicts the others;
of systems of several hosts only the link between hosts is fitted.

    python benchmarks/nccl/published_all_reduce.py
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steptime.fitting.links import fit_tables, modelled
from steptime.fitting.nccl_output import NcclRow, NcclTable
from steptime.model.link_sheets import LINKS, inner_link_of

_HERE = Path(__file__).parent
_SHORT, _LONG = 64 * 1024, 16 * 1024**2
"""Bytes up to which an all-reduce is of the latency end, and from which of the bandwidth end."""
_MICRO = 1e-6


@dataclass(frozen=True)
class System:
    """One published table."""

    table: NcclTable
    nic: str | None
    nics: int
    what: str

    def believed_s(self) -> NDArray[np.float64]:
        """Return the seconds of each size by data sheets alone."""
        inner = inner_link_of(self.table.device).link
        if self.nic is None:
            return modelled(self.table, inner, None)
        outer = LINKS[self.nic].link
        return modelled(self.table, inner, replace(outer, rate=outer.rate * self.nics))

    def held_out_s(self) -> NDArray[np.float64]:
        """Return the seconds of each size from a fit to every second one of the others."""
        found = np.zeros(len(self.table.rows))
        for parity in (0, 1):
            seen = replace(self.table, rows=self.table.rows[parity::2])
            (fitted,) = fit_tables([seen])
            inner = inner_link_of(self.table.device).link
            link = replace(
                inner if self.nic is None else LINKS[self.nic].link,
                rate=fitted.link.rate,
                latency=fitted.link.latency_s,
            )
            ends = (link, None) if self.nic is None else (inner, link)
            found[1 - parity :: 2] = modelled(self.table, *ends)[1 - parity :: 2]
        return found


def systems() -> list[System]:
    """Return the published tables."""
    with (_HERE / "published.csv").open(encoding="utf-8") as file:
        points = list(csv.DictReader(file))
    with (_HERE / "systems.csv").open(encoding="utf-8") as file:
        known = list(csv.DictReader(file))
    return [_system(each, [point for point in points if point["system"] == each["system"]]) for each in known]


def _system(each: dict[str, str], points: Sequence[dict[str, str]]) -> System:
    rows = tuple(
        NcclRow(int(point["bytes"]), float(point["out_of_place_us"]) * _MICRO, float(point["in_place_us"]) * _MICRO)
        for point in points
    )
    table = NcclTable(each["system"], int(each["ranks"]), int(each["hosts"]), each["device"], rows)
    return System(table, each["nic"] or None, int(each["nics_per_host"]), each["what"])


def _errors(system: System, seconds: NDArray[np.float64]) -> list[str]:
    rows = system.table.rows
    # Of both published times the smaller counts: the first of a run is often that of a cold start.
    best = np.array([min(row.out_of_place_s, row.in_place_s or row.out_of_place_s) for row in rows])
    sizes, errors = np.array([row.size for row in rows]), np.abs(seconds / best - 1)
    parts = (sizes <= _SHORT, (sizes > _SHORT) & (sizes < _LONG), sizes >= _LONG, np.ones(len(sizes), bool))
    return [f"{np.median(errors[part]):6.0%}" if part.any() else "     -" for part in parts]


def main() -> None:
    """Print the median absolute error of each system: latency end, middle, bandwidth end, all."""
    print(f"{'system':13}{'ranks':>6}{'sizes':>6}   believed: short middle long  all   fitted: short middle long  all")
    every: dict[str, list[float]] = {"believed": [], "fitted": []}
    for system in systems():
        cells = []
        for name, seconds in (("believed", system.believed_s()), ("fitted", system.held_out_s())):
            cells.append(" ".join(_errors(system, seconds)))
            every[name].append(float(cells[-1].split()[-1].rstrip("%")))
        table = system.table
        where = f"{table.hosts:>3}x{table.ranks // table.hosts:<2}{len(table.rows):>6}"
        print(f"{table.name:13}{where}   {cells[0]}    {cells[1]}")
    for name, medians in every.items():
        print(f"median over systems, {name}: {np.median(medians):.0f} %")


if __name__ == "__main__":
    main()
