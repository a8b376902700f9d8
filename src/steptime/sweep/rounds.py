"""The rounds of a sweep: those that were asked for, and within a budget as many more as narrow its speed-ups."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from steptime.execution.progress import Observer
from steptime.results.store import Store
from steptime.scaling.sweep_answer import needs_runs
from steptime.sweep.answer import options_of, sweep_answer
from steptime.sweep.plan import STORED, SweepPlan
from steptime.sweep.runs import SweepRuns, run_sweep

MOST_ROUNDS = 30
"""More narrow hardly anything that thirty did not."""


def run_rounds(  # noqa: PLR0913 - what to run, where, within what, and who watches
    plan: SweepPlan,
    store: Store,
    options: Mapping[str, Any],
    budget_s: float | None,
    observer: Observer,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[SweepPlan, SweepRuns]:
    """Run a sweep, and with a budget further rounds while the ends of a speed-up lie more than 1.2 times apart.

    Args:
        plan: of the sweep.
        store: its results folder, which must be locked.
        options: what the user stated, as the folder keeps it.
        budget_s: seconds that runs of this call may take.
        observer: is shown the runs.
        clock: seconds that never go back.

    Returns the plan with the rounds that were added, and what became of the runs.
    """
    end = None if budget_s is None else clock() + budget_s
    while True:
        store.put(STORED, {**plan.to_json(), "options": dict(options)})
        left_s = None if end is None else end - clock()
        outcome = run_sweep(plan, store, left_s, observer, clock=clock, most_steps=options.get("most_steps"))
        if end is None or outcome.left or outcome.failed or plan.repeats >= MOST_ROUNDS:
            return plan, outcome
        if not any(needs_runs(curve) for curve in sweep_answer(plan, store, options_of(options)).curves):
            return plan, outcome
        plan = plan.with_another_round
