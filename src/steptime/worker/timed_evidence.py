"""What timed launches show of their training beside times and losses: batches, and where the weights have come to.

All is computed when the timed steps are over. The same of a launch that repeats them without a clock, for comparison.
"""

import zlib
from typing import Any, Dict, List, Optional, Tuple

import numpy

from steptime.worker.batches import DrawnBatches
from steptime.worker.check import take_turns
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.session import Session
from steptime.worker.shared_file import RecordFile
from steptime.worker.weights import Sketcher, initial_weights

_SUMS = 4
"""Numbers of a short sketch: the distance of two is that of the arrays within a factor of two, nearly always."""
_DIGITS = "%.9g"
_TURNS = 2


def seen_batches(context: ProcessContext, steps: int) -> Dict[str, Any]:
    """Return what this process drew for its steps of a dataset.

    ``drawn``
        How many batches; None if they are synthetic, or another process draws them.
    ``batches``
        ``[(batch, samples, checksum)]`` of the ``kept_steps`` among them. The checksum is the CRC-32 of the indices as
        int64, without its first bit.
    """
    drawn = DrawnBatches.of(context.rank)
    checksums = [(number,) + _seen(chosen) for number, chosen in sorted(dict(drawn.kept).items()) if number <= steps]
    return {"drawn": drawn.number or None, "batches": checksums}


def _seen(chosen: Any) -> Tuple[int, int]:
    """Return the samples and the checksum of a kept batch, of its indices where it is given by these."""
    if isinstance(chosen, numpy.ndarray):
        return len(chosen), zlib.crc32(chosen.astype("<i8").tobytes()) & 0x7FFFFFFF
    return chosen.samples, chosen.checksum()


class UpdateSketcher(object):
    """Tells in a few numbers per array how far weights have come from the initial ones."""

    def __init__(self, job: Job, session: Optional[Session] = None) -> None:
        """Note the first weights of a user's module; every worker calls it before its first step."""
        self._job = job
        self._sketcher = Sketcher()
        own = session if "own" in job["workload"] else None
        self._first = self._sketcher.sketch(own.get_weights() or {}) if own else {}

    def sketch(self, weights: Optional[Dict[str, numpy.ndarray]]) -> Optional[Dict[str, List[float]]]:
        """Return ``{name: [length of the weights, length of their update, sums…]}``; None without weights.

        Lengths are of sketches, within 9 %. The sums are linear in the update: those of a difference of two updates
        are the differences of their sums, and their squares add up to the square of its length, as expected values.
        """
        if weights is None:
            return None
        if not self._first:
            initial = initial_weights(self._job["workload"]["layers"], self._job["seed"])
            self._first = self._sketcher.sketch(initial)
        found = {}
        for name, sketch in self._sketcher.sketch(weights).items():
            update = sketch - self._first[name]
            padded = numpy.append(update, numpy.zeros(-update.size % _SUMS))
            signs = 1.0 - 2.0 * numpy.random.RandomState(update.size).randint(0, 2, padded.size)
            sums = (padded * signs).reshape(-1, _SUMS).sum(axis=0)
            numbers = [numpy.linalg.norm(sketch), numpy.linalg.norm(update)] + list(sums)
            found[name] = [float(_DIGITS % number) for number in numbers]
        return found


class Evidence(object):
    """What one worker of a timed launch shows."""

    def __init__(self, session: Session, job: Job, context: ProcessContext) -> None:
        self._session = session
        self._context = context
        self._sketcher = UpdateSketcher(job, session)

    def first_update(self) -> Optional[Dict[str, List[float]]]:
        """Return the sketch of the weights behind the first step; None if workers do not wait for each other.

        No difference of it has grown yet, as those of later steps do, so that a rough update shows.
        """
        self._session.wait()
        return self._sketch() if self._session.staleness() is None else None

    def at_end(self, steps: int, alone: bool) -> Dict[str, Any]:
        """Return what ``seen_batches`` does, and as ``weights`` sketches of this worker's weights.

        Where the workers are ``alone``, which do not wait for each other, each takes ``_TURNS`` more steps in turn with
        the others. The sketches behind them show whether a worker's steps reach the weights of all, and theirs its own.
        """
        found = seen_batches(self._context, steps)  # ahead of turns, which draw more
        in_turns = alone and self._context.workers > 1
        weights = take_turns(self._session, self._context, _TURNS, self._sketch) if in_turns else [self._sketch()]
        return dict(found, weights=weights)

    def _sketch(self) -> Optional[Dict[str, List[float]]]:
        return self._sketcher.sketch(self._session.get_weights())


def run_replay(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Take the steps of ``job["schedule"]["rounds"]`` as timed launches do, and write the record ``replay``.

    ``losses`` and ``weights`` are those behind each round, ``batches`` those of ``seen_batches``.
    """
    sketcher, losses, weights = UpdateSketcher(job, session), [], []
    rounds = job["schedule"]["rounds"]
    for steps in rounds:
        for _ in range(steps):
            session.step()
        session.wait()
        losses.append(session.loss())
        weights.append(sketcher.sketch(session.get_weights()))
    records.write("replay", losses=losses, weights=weights, **seen_batches(context, sum(rounds)))
