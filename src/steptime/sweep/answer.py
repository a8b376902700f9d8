"""From the results folder of a sweep to what it found."""

from collections.abc import Mapping
from typing import Any

from steptime.results.store import Store
from steptime.scaling.knee import SHARES
from steptime.scaling.sweep_answer import SweepAnswer, SweepOptions, sweep_curve
from steptime.scaling.swept_runs import SweptRuns, read_runs
from steptime.sweep.plan import STORED, SweepPlan, SweepSetting, plan_of
from steptime.sweep.runs import ended_well


def swept(store: Store) -> SweepAnswer | None:
    """Return what the runs of a sweep found so far; None of a folder that holds another kind of results."""
    kept = store.get(STORED)
    if kept is None:
        return None
    plan = plan_of(kept, store.path)
    return sweep_answer(plan, store, options_of(kept.get("options") or {}))


def options_of(kept: Mapping[str, Any]) -> SweepOptions:
    """Return what a user stated, as a folder keeps it."""
    return SweepOptions(
        kind=kept.get("kind"),
        batch=kept.get("batch"),
        samples=kept.get("samples"),
        price=kept.get("price"),
        shares=tuple(kept.get("shares") or SHARES),
    )


def sweep_answer(plan: SweepPlan, store: Store, options: SweepOptions) -> SweepAnswer:
    """Return what the runs of a plan found so far."""
    groups: dict[str, list[SweptRuns]] = {}
    missing: list[str] = []
    for setting in sorted(plan.settings, key=lambda setting: setting.workers):
        runs, problem = runs_of(plan, store, setting)
        name = f"{setting.others}: " if setting.others else ""
        missing += [f"{name}{problem}."] if problem else []
        own = groups.setdefault(setting.others, [])
        own += [runs] if runs else []
    curves = [sweep_curve(name, runs, options) for name, runs in groups.items() if runs]
    return SweepAnswer(command=list(plan.command), curves=curves, missing=missing)


def runs_of(plan: SweepPlan, store: Store, setting: SweepSetting) -> tuple[SweptRuns | None, str | None]:
    """Return the runs of a setting that ended well, and what is wrong with them; see ``read_runs``."""
    folder = plan.folder_of(store.path, setting)
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    numbered = [(int(place.name), place) for place in places if place.name.isdecimal()]
    stores = [(number, Store.open(place)) for number, place in numbered if ended_well(place)]
    return read_runs(setting.workers, stores)
