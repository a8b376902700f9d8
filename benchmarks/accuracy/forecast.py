"""How well the forecast holds that a user gets: from one emulated host and two, of more hosts.

::

    python benchmarks/accuracy/forecast.py DIR [--frameworks pytorch,mxnet] [--strategies allreduce,fsdp]
        [--workloads small_alexnet] [--rates 100] [--hosts 3,4] [--share 1] [--launches 2] [--budget 60]
    python benchmarks/accuracy/forecast.py DIR --table

For every framework with all its strategies: ``steptime run`` on one host and two with a breakdown, ``steptime net``
over their link, ``steptime fit``, ``steptime predict`` for more hosts, and then ``steptime run`` on those. Nothing but
these commands makes a forecast, and every cell counts, on a quiet machine or not, with its noise beside it. Goals:
median error 3 %, 90th percentile 10 %, intervals of 90 % that hold 85 to 95 %.

What ``--replays`` adds, and what was broken down of two hosts, is also replayed (``replay.py``): the simulator plays
each step from the computing of its own launch. Replays come second; they forecast nothing.

With ``--share 25% --hosts 3,4,6,8`` each host may use a quarter of a core, so that eight hosts of one worker fit on two
cores. The same command goes on where it ended; what is there stays. Needs root for shares. DIR gets ``forecast.md``
and ``forecast.csv``. A framework takes about two minutes a strategy on a quiet machine.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from campaign import Campaign, Folders, Situation
from contestants import CONTESTANTS, LOADS
from forecast_cells import forecast_cells, situations_of
from forecast_table import page, write
from replay import replayed_steps

from steptime.units import parse_share


def main() -> int:
    """Measure what is missing, forecast, print."""
    asked = _arguments()
    root = asked.folder.resolve()
    names = list(CONTESTANTS) if asked.frameworks == "all" else asked.frameworks.split(",")
    loads = asked.workloads.split(",")
    for text, known in ((names, CONTESTANTS), (loads, LOADS)):
        for name in text:
            if name not in known:
                sys.exit(f"{name!r} is unknown; choose of {', '.join(known)}")
    if not asked.table:
        campaign = Campaign(
            root,
            launches=asked.launches,
            hosts=[int(each) for each in asked.hosts.split(",")],
            replays=asked.replays,
            deadline=time.monotonic() + 60 * asked.budget if asked.budget else None,
        )
        for name in names:
            whole = CONTESTANTS[name]
            kept = [each for each in whole.strategies if not asked.strategies or each in asked.strategies.split(",")]
            for load in loads:
                for rate in asked.rates.split(","):
                    contestant = replace(whole, strategies=tuple(kept))
                    campaign.measure(contestant, Situation(load, float(rate), asked.share))
    cells = [
        cell
        for name in CONTESTANTS
        for situation in situations_of(root, name)
        for cell in forecast_cells(Folders(root, name, situation))
    ]
    replays = [
        replay
        for name in CONTESTANTS
        for situation in situations_of(root, name)
        for replay in replayed_steps(Folders(root, name, situation))
    ]
    write(root, cells, replays)
    print(page(cells, replays))
    return 0 if cells else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where measurements are, or will be")
    parser.add_argument("--frameworks", default="all", help=f"of {', '.join(CONTESTANTS)}, or all")
    parser.add_argument("--strategies", help="of those that exchange gradients; by default all of a framework")
    parser.add_argument("--workloads", default="small_alexnet", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--rates", default="100", help="Mbit/s")
    parser.add_argument("--hosts", default="3,4", help="that are forecast, each with one worker")
    parser.add_argument("--share", type=parse_share, default=1.0, help="of a core, for each host")
    parser.add_argument("--launches", type=int, default=2, help="of each cell")
    parser.add_argument("--replays", action="store_true", help="take the steps of those hosts apart too")
    parser.add_argument("--budget", type=float, help="minutes after which no launch is begun")
    parser.add_argument("--table", action="store_true", help="measure nothing, print what is there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
