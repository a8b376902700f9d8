"""Coverage of the intervals of ``predict`` for one host of eight devices asked for more hosts, on made-up clusters.

python benchmarks/clusters/made_up_clusters.py [CLUSTERS] [LARGEST] [--first SEED] [--steps FILE]

200 clusters of up to 1024 devices take about five minutes of one quiet core: beyond 64 devices the rings of a step are
simulated round by round instead of chunk by chunk. FILE, a row of JSON per cluster and number of devices, keeps the
simulated steps, which no change of the predictor alters: a run that was interrupted, or one with another predictor,
simulates none of them again.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "predict"))

from host_events import GPUS, MadeUpCluster, a_cluster, profile_of
from world import asked

_USUAL, _LARGEST = 200, 1024
_FEW = 32
"""Devices up to which several steps are simulated, for their median."""
_BITS = 8


class Row(NamedTuple):
    """One cluster asked for so many devices; seconds of a step."""

    devices: int
    true: float
    low: float
    value: float
    high: float


class SimulatedSteps:
    """The true steps of clusters by seed and devices, kept in a file where there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[tuple[int, int], float] = {}
        if path is not None and path.is_file():
            rows = (json.loads(line) for line in path.read_text().splitlines())
            self._known = {(row["seed"], row["devices"]): row["step_s"] for row in rows}

    def step_s(self, cluster: MadeUpCluster, seed: int, devices: int) -> float:
        """Return what a launch on so many devices measures."""
        if (seed, devices) not in self._known:
            rng = np.random.default_rng(seed)
            step = cluster.step_s(devices, rng, 3 if devices <= _FEW else 1)
            step *= float(np.exp(cluster.noise * rng.standard_normal()))
            self._known[seed, devices] = step
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps({"seed": seed, "devices": devices, "step_s": step}) + "\n")
        return self._known[seed, devices]


def main() -> None:
    """Print coverage, the median error and the width of intervals for each number of devices."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clusters", nargs="?", type=int, default=_USUAL)
    parser.add_argument("largest", nargs="?", type=int, default=_LARGEST)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--steps", type=Path, metavar="FILE")
    given = parser.parse_args()
    sizes = [size for size in (16, 32, 64, 128, 256, 512, 1024) if size <= given.largest]
    known = SimulatedSteps(given.steps)
    seeds = range(given.first, given.first + given.clusters)
    rows = [row for seed in seeds for row in _predicted(seed, sizes, known)]
    print("devices clusters inside       below  above  median error  bias  width of the interval")
    for size in sizes:
        _print(str(size), [row for row in rows if row.devices == size])
    _print("all", rows)


def _predicted(seed: int, sizes: Sequence[int], known: SimulatedSteps) -> Iterator[Row]:
    cluster = a_cluster(seed)
    profile = profile_of(cluster, seed)
    link = f"nic_bandwidth={cluster.nominal * _BITS / 1e9:g}Gbit/s"
    for size in sizes:
        found = asked(profile, size, f"gpus_per_host={GPUS}", link, f"nics_per_host={cluster.cards}").step_s
        if found is not None:
            yield Row(size, known.step_s(cluster, seed, size), found.low, found.value, found.high)


def _print(name: str, rows: Sequence[Row]) -> None:
    _, true, low, value, high = np.array(rows, float).T
    below, above, error = low > true, high < true, value / true - 1
    inside = len(rows) - int(below.sum()) - int(above.sum())
    print(
        f"{name:>7}{len(rows):>9}{inside:>7} {inside / len(rows):>6.1%}{below.mean():>7.1%}{above.mean():>7.1%}"
        f"{np.median(np.abs(error)):>13.1%}{np.median(error):>7.1%}{np.median(np.log(high / low)):>10.0%}",
        flush=True,
    )


if __name__ == "__main__":
    main()
