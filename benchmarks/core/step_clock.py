"""What the clock of a timing run costs: ticks, as a share of a step of one millisecond.

    python benchmarks/core/step_clock.py

Prints the median of many stretches of ticks with its quartiles.
"""

import statistics
import time

from steptime.worker.clock import HostClock

TICKS = 10_000
STRETCHES = 200
STEP_S = 1e-3


def main() -> None:
    """Time stretches of ticks with nothing between them."""
    costs = []
    for _ in range(STRETCHES):
        clock = HostClock(lambda: None)
        started = time.perf_counter()
        for _ in range(TICKS):
            clock.tick()
        costs.append((time.perf_counter() - started) / TICKS)
        clock.drain()
    low, middle, high = statistics.quantiles(costs, n=4)
    print(f"one tick: {middle * 1e9:.0f} ns (quartiles {low * 1e9:.0f} to {high * 1e9:.0f}, {STRETCHES} stretches)")
    print(f"share of a step of 1 ms: {middle / STEP_S:.4%}")


if __name__ == "__main__":
    main()
