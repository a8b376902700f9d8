"""How well step times on emulated hosts are predicted from one worker's numbers and a benchmark of one link.

::

    python benchmarks/accuracy/emulated_cluster.py DIR [--frameworks pytorch,mxnet_sync] [--workloads lenet5,mlp]
        [--rates 50,100,200] [--hosts 2,3,4] [--launches 3] [--rounds 3] [--budget 20]
    python benchmarks/accuracy/emulated_cluster.py DIR --table

For every framework, workload, bandwidth and number of hosts, three things are measured: computing alone (the ladder's
rungs that send nothing, with one worker and with as many as will train), the link between two hosts (`steptime net`
with the framework's back end), and the step time itself, which is only compared with. Nothing is fitted to a step that
sends. The table has the error of the prediction and of simpler ones beside it; DIR has it as JSON lines and CSV too.
The same step times are measured once more in turns with computing that sends nothing, in the same launches
(``turns.py``), where computing has a part in them: a machine may be quicker in one launch than in another.
Launches that had not the processors to themselves are set aside and repeated (``quiet.py``); the others stay in DIR,
whether the last run came to its end or not, and the table has all of them. Parameter servers have a host each. Needs
root. A framework takes 25 to 35 minutes with the usual three workloads where all launches are quiet. Two have to be
asked for: the multilayer perceptron with another batch, and ResNet-50, which by its bytes takes half an hour at three
bandwidths, with servers an hour and a half.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path

from buckets import buckets
from contestants import CONTESTANTS, LOADS
from measuring import Measuring, Place
from predicting import cells
from settings import settings
from table import show, show_buckets, summarise, write
from turns import cells_in_turns

_USUAL = "lenet5,mlp,small_alexnet"


def main() -> int:
    """Measure, predict, print."""
    asked = _arguments()
    place = Place(asked.folder.resolve())
    if not asked.table:
        names = _known(asked.frameworks, CONTESTANTS)
        loads = _known(asked.workloads, LOADS)
        rates = [float(each) for each in asked.rates.split(",")]
        measuring = Measuring(
            place,
            hosts=[int(each) for each in asked.hosts.split(",")],
            launches=asked.launches,
            servers=asked.servers,
            rounds=asked.rounds,
            deadline=time.monotonic() + 60 * asked.budget if asked.budget else None,
        )
        for name in names:
            measuring.everything(CONTESTANTS[name], loads, rates)
            print(f"{name}: {measuring.spent[name] / 60:.1f} minutes", file=sys.stderr, flush=True)
    found, pieces = [], []
    for contestant, name in product(CONTESTANTS.values(), LOADS):
        for rate in place.rates(contestant, name):
            known = list(settings(place, contestant, name, rate))
            found += cells(known)
            found += cells_in_turns(known, contestant)
            pieces += buckets(known, contestant)
    show(found)
    summarise(found)
    show_buckets(pieces)
    write(place.root, found, pieces)
    return 0 if found else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where measurements are, or will be")
    parser.add_argument("--frameworks", default="pytorch", help=f"of {', '.join(CONTESTANTS)}, or all")
    parser.add_argument("--workloads", default=_USUAL, help=f"of {', '.join(LOADS)}, or all")
    parser.add_argument("--rates", default="50,100,200", help="Mbit/s")
    parser.add_argument("--hosts", default="2,3,4", help="each with one worker")
    parser.add_argument("--launches", type=int, help="of each cell; else as many as each workload needs")
    parser.add_argument("--rounds", type=int, default=3, help="for launches that were not quiet, at most")
    parser.add_argument("--servers", type=int, default=1, help="of MXNet's key-value store")
    parser.add_argument("--budget", type=float, help="minutes after which no launch is begun")
    parser.add_argument("--table", action="store_true", help="measure nothing, print what is there")
    return parser.parse_args()


def _known(text: str, choices: dict[str, object]) -> list[str]:
    names = list(choices) if text == "all" else text.split(",")
    for name in names:
        if name not in choices:
            sys.exit(f"{name!r} is unknown; choose of {', '.join(choices)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
