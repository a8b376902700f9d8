"""What timed launches show of their training beside times and losses: batches, and where the weights have come to.

All is computed when the timed steps are over. The same of a launch that repeats them without timers, for comparison.
"""

import os
import zlib
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy

from steptime.worker.check import take_turns, whole_step
from steptime.worker.process_context import Job, ProcessContext
from steptime.worker.rate_schedules import learning_rate
from steptime.worker.session import DrawnBatches, Session
from steptime.worker.shared_file import RecordFile, SharedFlag, open_whole
from steptime.worker.weights import Sketcher, initial_weights

_SUMS = 4
"""Numbers of a short sketch: the distance of two is that of the arrays within a factor of two, nearly always."""
_DIGITS = "%.9g"
_TURNS = 2
_ALONE = 3
"""Steps that a worker takes without the others: behind two, it is known how the last update goes on by momentum."""
_FOR_TWO_TURNS = 5
"""Steps of a warm-up, of which the others still say how long one takes."""


def kept_weights(folder: str, rank: int, place: str = "alone") -> str:
    """Return the path of the weights ahead of the last step that a worker took alone at a ``place`` of its launch.

    That is ``alone`` behind all steps, and ``pause`` within the timed ones.
    """
    return os.path.join(folder, "%s-weights-%d.npz" % (place, rank))


def first_turns(warmup: int) -> int:
    """Return how many of ``warmup`` steps workers take in turn that do not wait for each other."""
    return _TURNS if warmup >= _FOR_TWO_TURNS else 1


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

    def first_updates(self, take: Callable[[int], Any], warmup: int) -> List[Optional[Dict[str, List[float]]]]:
        """Take the first of ``warmup`` steps, and return sketches of the weights behind each that was taken.

        No difference of them has grown yet, as those of later steps do, so that a rough update shows. Of workers that
        do not wait for each other it is known only of steps in turn which gradients the weights have, and how often
        each: they take ``first_turns`` of these.
        """

        def step() -> None:
            take(1)
            self._session.wait()

        if self._alone():
            return take_turns(step, self._context, first_turns(warmup), self.sketch, "first-turn")
        step()
        return [self.sketch()] if self._session.staleness() is None else []

    def _alone(self) -> bool:
        """Whether there are other workers, for whom this one does not wait."""
        return self._context.workers > 1 and self._session.staleness() is not None

    def at_end(self, steps: int) -> Dict[str, Any]:
        """Return what ``seen_batches`` does, and as ``weights`` sketches of this worker's weights.

        Where workers do not wait for each other, each takes ``_TURNS`` more steps in turn with the others. The sketches
        behind them show whether a worker's steps reach the weights of all, and theirs its own. In one more turn each
        takes ``_ALONE`` steps, between which the weights are its own alone: ``alone`` has the sketches behind each, and
        number and loss of the last batch, whose step can be repeated from the weights that ``kept_weights`` names.
        """
        found = seen_batches(self._context, steps)  # ahead of turns, which draw more
        if not self._alone():
            return dict(found, weights=[self.sketch()], alone=None)
        step = whole_step(self._session)
        weights = take_turns(step, self._context, _TURNS, self.sketch, "turn")
        return dict(found, weights=weights, alone=self.steps_alone(step, steps + _TURNS, "alone"))

    def pause_behind(self, timed: int) -> "Pause":
        """Return the pause behind so many ``timed`` steps: of the first worker, where they do not wait."""
        flag = None
        if self._alone():
            path = os.path.join(self._context.folder, "pause.flag")
            flag = SharedFlag(path, own=self._context.rank == 0)
        return Pause(self, self._session, timed, flag, leads=self._context.rank == 0)

    def steps_alone(self, step: Callable[[], Any], taken: int, place: str) -> Dict[str, Any]:
        """Take ``_ALONE`` steps behind those ``taken``, while no other worker takes any; return what came of them."""
        seen: List[Any] = []

        def steps_alone() -> None:
            for number in range(_ALONE):
                if number == _ALONE - 1:
                    self._keep_weights(place)
                step()
                seen.append(self.sketch())

        take_turns(steps_alone, self._context, 1, lambda: None, place)
        return {"batch": taken + _ALONE, "loss": self._session.loss(), "weights": seen}

    def _keep_weights(self, place: str) -> None:
        weights: Any = self._session.get_weights()
        if weights is not None:
            with open_whole(kept_weights(self._context.folder, self._context.rank, place), "wb") as file:
                numpy.savez(file, **weights)

    def sketch(self) -> Optional[Dict[str, List[float]]]:
        """Return the sketches of this worker's weights; every worker calls it at the same point."""
        return self._sketcher.sketch(self._session.get_weights())


class Pause(object):
    """An interruption of the timed steps, at which evidence is taken that no step before it could foresee.

    Workers that wait for each other pause behind the same step. Of others the first one does so behind a known step,
    and they behind the one that they take at that moment: none goes on without the others.
    """

    def __init__(
        self, evidence: Evidence, session: Session, timed: int, flag: Optional[SharedFlag], leads: bool
    ) -> None:
        self._evidence = evidence
        self._session = session
        self._timed = timed
        self._flag = flag
        self._leads = leads

    def most(self, steps: int) -> int:
        """Return how many of so many steps are taken ahead of it, at most."""
        return self._timed if self._leads or self._flag is None else steps

    def tick(self, tick: Callable[[], Any]) -> Callable[[], Any]:
        """Return what does as ``tick``, and returns what is true when the pause is due."""
        if self._leads or self._flag is None:
            return tick
        due = self._flag.is_up

        def tick_and_look() -> int:
            tick()
            return due()

        return tick_and_look

    def begin(self) -> None:
        """Call for the pause, where workers do not wait for each other."""
        if self._leads and self._flag is not None:
            self._flag.put_up()

    def evidence(self, take: Callable[[int], Any], taken: int) -> Dict[str, Any]:
        """Return what a worker shows behind so many steps ``taken``.

        ``steps``
            Those that are taken in the pause.
        ``weights``, ``loss``
            Sketches and the loss; None of workers that do not wait for each other.
        ``alone``
            As in ``Evidence.at_end``, of such workers.
        """
        if self._flag is None:
            return {"steps": 0, "loss": self._session.loss(), "weights": self._evidence.sketch(), "alone": None}

        def step() -> None:
            take(1)
            self._session.wait()

        alone = self._evidence.steps_alone(step, taken, "pause")
        return {"steps": _ALONE, "loss": None, "weights": None, "alone": alone}


def _rate_setter(session: Session, job: Job) -> Callable[[], None]:
    """Return what sets the learning rate of the next step as a training does; of timed steps it does nothing."""
    if "training" not in job:
        return lambda: None
    training, validated = job["training"], job["schedule"]["validation_losses"]
    rates: List[float] = []

    def set_rate() -> None:
        step = len(rates)
        rate = learning_rate(training, step, validated[: step // training["steps_per_epoch"]])
        if not rates or rate != rates[-1]:
            session.set_learning_rate(rate)
        rates.append(rate)

    return set_rate


def run_replay(session: Session, job: Job, context: ProcessContext, records: RecordFile) -> None:
    """Take the steps of ``job["schedule"]["rounds"]`` as timed launches do, and write the record ``replay``.

    ``losses`` and ``weights`` are those behind each round, ``batches`` those of ``seen_batches``. With ``turns``, the
    workers take the rounds in turn, of one step each, beginning with the worker ``first_turn``; without ``weights``,
    these are None.
    """
    sketcher, losses, weights = UpdateSketcher(job, session), [], []
    rounds, looks = job["schedule"]["rounds"], job["schedule"].get("weights", True)

    def note() -> None:
        losses.append(session.loss())
        weights.append(sketcher.sketch(session.get_weights()) if looks else None)

    if job["schedule"].get("turns"):
        first = job["schedule"].get("first_turn", 0)
        take_turns(whole_step(session), context, len(rounds), note, "first-turn", first)
    set_rate = _rate_setter(session, job)
    for steps in [] if losses else rounds:
        for _ in range(steps):
            set_rate()
            session.step()
        session.wait()
        note()
    records.write("replay", losses=losses, weights=weights, **seen_batches(context, sum(rounds)))
