"""Breakdowns beside the steps that were timed: one that something else held up keeps its shares, not its seconds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from steptime.fitting.observation import LaunchPhases, Observation, observe
from steptime.phases import HIDDEN
from steptime.results.store import Store

_USUAL_SPREAD = 0.05
"""Standard deviation of the logarithm of a launch where no launches show one."""
_SURE = 4.0
"""Standard deviations beyond which a launch differs by more than launches do."""
_LEAST = float(np.log(1.25))
"""Of a logarithm: what marks and stages may add to a step without being a disturbance."""


def timed_observations(store: Store) -> list[Observation]:
    """Return what models are fitted to and compared with: a results folder, by ``to_timed_steps``."""
    return to_timed_steps(observe(store))


def to_timed_steps(observations: Sequence[Observation]) -> list[Observation]:
    """Return observations whose breakdowns last as long as the timed steps, where they differ by more than launches do.

    There is one breakdown to several launches of the same training. What held up it alone would make computing, or
    the contention between workers, several times as slow as any launch was; its shares are the best that is known.
    """
    return [_to_timed_step(each) for each in observations]


def _to_timed_step(one: Observation) -> Observation:
    timed = np.log(one.steps_s)
    spread = one.pooled_spread or _USUAL_SPREAD
    limit = max(_LEAST, _SURE * spread * float(np.sqrt(1.0 + 1.0 / len(timed))))
    scaled, notes = [], []
    for phases in one.launch_phases:
        step = sum(seconds for name, seconds in phases.phases.items() if seconds is not None and name != HIDDEN.name)
        factor = float(np.exp(timed.mean()) / step) if step > 0.0 else 1.0
        if abs(np.log(factor)) <= limit:
            scaled.append(phases)
            continue
        scaled.append(_scaled(phases, factor))
        notes.append(
            f"a step of the breakdown of {one.trial} took {1.0 / factor:.3g} times the timed one: its shares are used, "
            "not its seconds"
        )
    return replace(one, launch_phases=tuple(scaled), notes=tuple(notes)) if notes else one


def _scaled(phases: LaunchPhases, factor: float) -> LaunchPhases:
    def by_factor(seconds: float | None) -> float | None:
        return None if seconds is None else factor * seconds

    return replace(
        phases,
        phases={name: by_factor(seconds) for name, seconds in phases.phases.items()},
        communication_s=by_factor(phases.communication_s),
        input_s=by_factor(phases.input_s),
    )
