"""The all-reduce algorithms by name."""

from collections.abc import Callable, Mapping

from steptime.perfmodels.communication.halving_doubling import halving_doubling
from steptime.perfmodels.communication.link import Link, Real
from steptime.perfmodels.communication.recursive_doubling import recursive_doubling
from steptime.perfmodels.communication.ring import ring
from steptime.perfmodels.communication.tree import tree

ALLREDUCE: Mapping[str, Callable[[Real, Real, Link], Real]] = {
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
    "tree": tree,
}
"""Each takes bytes per worker, workers and a link, and returns seconds."""
