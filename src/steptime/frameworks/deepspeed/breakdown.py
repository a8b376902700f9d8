"""DeepSpeed's wall-clock breakdown, of those steps alone that are asked about."""

from deepspeed.runtime.engine import EngineTimers

SOURCE = "DeepSpeed timers"
_PER_SECOND = 1000.0
"""DeepSpeed's timers tell milliseconds."""


class Breakdown(object):
    """Switches the engine's timers on around a step.

    The setting ``wall_clock_breakdown`` would have every step timed, from the first to the last, and each printed.
    """

    def __init__(self, engine, timed):
        """Take over the timers of ``engine``.

        Args:
            engine: whose setting ``wall_clock_breakdown`` is off.
            timed: for timers, ``(name, ...)``, the phases that they cover together.
        """
        self._engine = engine
        self._timed = timed
        self._off = engine.engine_timers
        self._on = EngineTimers(enable_micro_timers=False, enable_global_timers=True)
        self._steps = 0

    def begin(self):
        """Time the step that follows."""
        self._engine.engine_timers = self._on

    def end(self):
        """Time none any more."""
        self._engine.engine_timers = self._off
        self._steps += 1

    def told(self):
        """Return what ``Session.native`` does."""
        steps, self._steps = self._steps, 0
        if not steps:
            return {}
        seconds = {name: self._engine.timers(name).elapsed(reset=True) / _PER_SECOND for name in self._on.global_timers}
        return {SOURCE: {phases: sum(seconds[name] for name in names) / steps for names, phases in self._timed.items()}}
