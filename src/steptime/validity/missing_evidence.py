"""Which evidence of right training a trial lacks: it shows nothing, so that it costs the rank or is named.

A replay that failed costs the rank: the framework could not take the steps that were timed. One that is not there, in
a study that is still running or whose files were removed, is named as a flag.
"""

from collections.abc import Sequence

from steptime.catalog.choices import strategy_named
from steptime.flags import flag_text
from steptime.results.records import Launch, Replay, WorkerSteps
from steptime.study.trial import Trial
from steptime.validity.kept_losses import FROZEN, losses_of, steps_of
from steptime.validity.steps_alone import can_repeat, unrepeated


def can_replay(trial: Trial) -> bool:
    """Say whether launches without timers show something of the timed steps of a trial."""
    alone = trial.workers == 1 and not strategy_named(trial.strategy).synchronous
    return trial.training is None and not alone


def can_pause(trial: Trial) -> bool:
    """Say whether what timed launches of a trial show in a pause can be compared with a replay."""
    return can_replay(trial) if strategy_named(trial.strategy).synchronous else can_repeat(trial)


def wanted_steps(trial: Trial, launches: Sequence[Launch]) -> dict[float, list[int]]:
    """Return the steps of the replays that launches are compared with, by what is multiplied with the learning rate."""
    kept = {step for each in launches for worker in each.workers[:1] for step, _ in losses_of(worker)}
    ends = {steps_of(worker) for each in launches for worker in each.workers[:1]}
    if strategy_named(trial.strategy).synchronous:
        return {1.0: sorted(kept | ends)}
    turns = max((len(worker.first_turns) for each in launches for worker in each.workers), default=0)
    in_turn = {1.0: list(range(1, turns + 1))} if turns else {}
    return {FROZEN: sorted(kept), **in_turn}


def lacking(wanted: dict[float, list[int]], replays: Sequence[Replay]) -> dict[float, list[int]]:
    """Return those of the ``wanted`` that no good replay covers."""
    return {
        nudge: steps
        for nudge, steps in wanted.items()
        if not any(each.nudge == nudge and _is_good(each) and set(steps) <= set(each.steps) for each in replays)
    }


def failed_replay(trial: Trial, launches: Sequence[Launch], replays: Sequence[Replay]) -> str | None:
    """Return why a trial has no rank whose timed steps could not be repeated; None if they were, or none was tried."""
    left = lacking(wanted_steps(trial, _with_evidence(launches)), replays) if can_replay(trial) else {}
    alone = {each.launch for each, _ in unrepeated(trial, launches, replays)}
    wanted = [each for each in replays if (each.nudge in left if each.rank is None else each.launch in alone)]
    failed = next((each.reason for each in reversed(wanted) if each.reason), None)
    if failed is None:
        return None
    return f"its timed steps could not be repeated without timers, and nothing shows what they did: {failed}"


def replay_flags(trial: Trial, launches: Sequence[Launch], replays: Sequence[Replay]) -> list[str]:
    """Return the flag of a trial whose good launches are compared with no replay, or with none of all their steps."""
    if not launches or not can_replay(trial):
        return []
    shown = _with_evidence(launches)
    if not shown:
        return [flag_text("unrepeated", why="its records are from before launches kept evidence of their training")]
    without = unrepeated_launches(trial, launches, replays)
    if not without:
        return []
    why = f"replays.jsonl has no replay of {len(without)} of {len(shown)} launches; run the study again"
    return [flag_text("unrepeated", why=why)]


def unrepeated_launches(trial: Trial, launches: Sequence[Launch], replays: Sequence[Replay]) -> list[Launch]:
    """Return the good launches with evidence that no replay covers; none of trials that are not replayed.

    Replays of several runs, each of other launches, may cover them one by one.
    """
    launched = _with_evidence(launches) if can_replay(trial) else []
    alone = {each.launch for each, _ in unrepeated(trial, launched, replays)}
    return [each for each in launched if each.launch in alone or lacking(wanted_steps(trial, [each]), replays)]


def is_unproven(trial: Trial, launches: Sequence[Launch], replays: Sequence[Replay]) -> bool:
    """Say whether a trial has good launches with evidence, no replay covers any of them, and none has failed."""
    without = unrepeated_launches(trial, launches, replays)
    return (
        bool(without)
        and len(without) == len(_with_evidence(launches))
        and failed_replay(trial, launches, replays) is None
    )


def _is_good(replay: Replay) -> bool:
    """Say whether a replay from the first weights succeeded."""
    return replay.reason is None and replay.rank is None


def _with_evidence(launches: Sequence[Launch]) -> list[Launch]:
    """Return the launches that kept what a replay is compared with."""
    return [each for each in launches if any(map(_keeps, each.workers))]


def _keeps(worker: WorkerSteps) -> bool:
    return bool(worker.losses or worker.weights)
