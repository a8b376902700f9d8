"""Coverage of the intervals of ``predict`` for one host of eight devices asked for more hosts, on made-up clusters.

python benchmarks/clusters/made_up_clusters.py [CLUSTERS] [LARGEST]

200 clusters of up to 1024 devices take about ten minutes of one quiet core: beyond 64 devices the rings of a step are
simulated round by round instead of chunk by chunk.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "predict"))

from host_events import GPUS, a_cluster, profile_of
from world import asked

_USUAL, _LARGEST = 200, 1024
_FEW = 32
"""Devices up to which several steps are simulated, for their median."""
_BITS = 8


def main() -> None:
    """Print coverage, the median error and the width of intervals for each number of devices."""
    clusters = int(sys.argv[1]) if len(sys.argv) > 1 else _USUAL
    largest = int(sys.argv[2]) if len(sys.argv) > 2 else _LARGEST
    sizes = [size for size in (16, 32, 64, 128, 256, 512, 1024) if size <= largest]
    rows: dict[int, list[tuple[bool, bool, float, float]]] = {size: [] for size in sizes}
    for seed in range(clusters):
        cluster = a_cluster(seed)
        profile = profile_of(cluster, seed)
        for size in sizes:
            link = f"nic_bandwidth={cluster.nominal * _BITS / 1e9:g}Gbit/s"
            found = asked(profile, size, f"gpus_per_host={GPUS}", link, f"nics_per_host={cluster.cards}").step_s
            if found is None:
                continue
            rng = np.random.default_rng(seed)
            true = cluster.step_s(size, rng, 3 if size <= _FEW else 1) * np.exp(cluster.noise * rng.standard_normal())
            rows[size].append(
                (found.low > true, found.high < true, found.value / true - 1, np.log(found.high / found.low))
            )
    print("devices clusters inside  below  above  median error  bias  width of the interval")
    for size, each in [*rows.items(), ("all", [row for some in rows.values() for row in some])]:
        below, above, error, width = np.array(each, float).T
        inside = 1 - below.mean() - above.mean()
        print(
            f"{size!s:>7}{len(each):>9}{inside:>7.0%}{below.mean():>7.0%}{above.mean():>7.0%}"
            f"{np.median(np.abs(error)):>13.1%}{np.median(error):>7.1%}{np.median(width):>10.0%}"
        )


if __name__ == "__main__":
    main()
