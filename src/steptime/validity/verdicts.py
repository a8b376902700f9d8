"""The verdicts on the trials of a results folder: why trials have no result, or no rank.

Whether a trial passed the equivalence check is derived from the records of the checks, never from ``verdicts.json``;
that file only adds what left no record: a shortage of memory, a missing environment, a spent budget.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal, TypedDict

from steptime.catalog.choices import SYNTHETIC, strategy_named
from steptime.errors import PluginError, WorkloadError
from steptime.flags import flag_text
from steptime.results.equivalence_records import EquivalenceResult
from steptime.results.store import Store
from steptime.study.trial import Trial
from steptime.validity.training_evidence import WRONG, EarlyLosses


def fewer_checked(trial: Trial, checks: Sequence[EquivalenceResult]) -> list[str]:
    """Return the flag of a trial that was checked with fewer workers than it was timed with."""
    own = [each.workers for each in checks if each.workload == trial.workload and concerns(each, trial)]
    return (
        [flag_text("fewer_checked", checked=max(own), workers=trial.workers)]
        if own and max(own) < trial.workers
        else []
    )


_MOST_WORKERS = 3
"""Of a check whose record does not name its trials."""


class TrialVerdict(TypedDict):
    """Why a trial has no result, or no rank."""

    status: Literal["failed", "not_equivalent", "unranked"]
    reason: str


def verdicts_of(store: Store) -> dict[str, TrialVerdict]:
    """Return the verdicts on the trials of a results folder, as their equivalence checks and runs found them."""
    kept = store.get("verdicts") or {}
    settings = store.study_json.get("equivalence") or {}
    return trial_verdicts(store.trials(), store.equivalence(), kept, all_checked=bool(settings.get("enabled", False)))


def trial_verdicts(
    trials: Sequence[Trial],
    checks: Sequence[EquivalenceResult],
    kept: Mapping[str, TrialVerdict],
    *,
    all_checked: bool,
) -> dict[str, TrialVerdict]:
    """Return the verdicts on ``trials`` by trial id; trials without one are ranked.

    Args:
        trials: of the results folder.
        checks: its records of the equivalence check, oldest first.
        kept: what runs kept in ``verdicts.json``. Used for trials without a check record.
        all_checked: whether the study has the equivalence check, so that a trial without a record of one has no rank.
    """
    found: dict[str, TrialVerdict] = {}
    named = any(check.trials is not None for check in checks)
    current = _current(trials, checks, kept)
    for trial in trials:
        own, before = current[trial.id], kept.get(trial.id)
        failed = next((check for check in own if not check.passed), None)
        rounded = next((check.unranked for check in own if check.unranked), None)
        if failed is not None:
            found[trial.id] = {"status": "not_equivalent", "reason": failure(failed)}
        elif before is not None and not (own and before["status"] == "not_equivalent"):
            found[trial.id] = before
        elif rounded is not None:
            found[trial.id] = {"status": "unranked", "reason": rounded}
        elif all_checked and (missing := _missing_check(trial, own, named=named or not checks)):
            found[trial.id] = {"status": "unranked", "reason": missing}
    return found


def _missing_check(trial: Trial, own: Sequence[EquivalenceResult], *, named: bool) -> str | None:
    """Return which check of a trial is missing; None if none is, or checks are ``named`` for no trial, as of old."""
    if not named:
        return None
    there = {check.workload for check in own}
    if trial.workload not in there:
        return "equivalence.jsonl holds no check of this trial"
    if trial.dataset is not None and trial.loader != SYNTHETIC.name and loader_check(trial) not in there:
        return f"equivalence.jsonl holds no check of {loader_check(trial)}"
    return None


def failure(check: EquivalenceResult) -> str:
    """Return the reason of the verdict on trials whose ``check`` failed."""
    return f"did not pass the equivalence check: {check.reason}"


def current_checks(trials: Sequence[Trial], checks: Sequence[EquivalenceResult]) -> list[EquivalenceResult]:
    """Return the checks that are the last of their kind for some trial, or for no trial of the folder, oldest first."""
    last = {id(check) for own in _current(trials, checks, {}).values() for check in own}
    strangers = {_key(check): id(check) for check in checks if not any(concerns(check, trial) for trial in trials)}
    return [check for check in checks if id(check) in last | set(strangers.values())]


def loader_check(trial: Trial) -> str:
    """Return the name that a check of a trial's loader has in place of a workload."""
    helpers = f" with {trial.loader_processes} helpers" if trial.loader_processes else ""
    return f"the {trial.loader} loader of {trial.dataset}{helpers}"


def concerns(check: EquivalenceResult, trial: Trial) -> bool:
    """Whether ``check`` covers ``trial``: it names the trial, or in older records what the trial computes with."""
    if check.trials is not None:
        return trial.id in check.trials
    same = check.framework == trial.framework and tuple(check.input_shape) == trial.input_shape
    if trial.loader != SYNTHETIC.name and check.workload == loader_check(trial):
        return same
    return (
        same
        and check.workload == trial.workload
        and check.strategy == trial.strategy
        and check.workers in {trial.workers, min(trial.workers, _MOST_WORKERS)}
        and check.options == trial.options
        and check.environment_variables == trial.environment_variables
        and check.optimizer == trial.optimizer.name
    )


def _current(
    trials: Sequence[Trial], checks: Sequence[EquivalenceResult], kept: Mapping[str, TrialVerdict]
) -> dict[str, list[EquivalenceResult]]:
    """Return by trial id the checks that count: the last of its workload and the last of its loader.

    An older record may be of any of several kinds of trials (precisions, for instance). As many of the last records
    as there are kinds count then; a failed one counts against the trials whose kept verdict has its reason, or against
    all of them where no verdict has.
    """
    found: dict[str, dict[str, list[EquivalenceResult]]] = {trial.id: {} for trial in trials}
    for check in checks:
        concerned = [trial for trial in trials if concerns(check, trial)]
        kinds = len({_kind(trial, check) for trial in concerned}) if check.trials is None else 1
        for trial in concerned:
            own = found[trial.id].setdefault(check.workload, [])
            own[:] = [*own, check][-kinds:]
    return {
        trial.id: [check for own in found[trial.id].values() for check in own if _meant(trial, check, trials, kept)]
        for trial in trials
    }


def _meant(trial: Trial, check: EquivalenceResult, trials: Sequence[Trial], kept: Mapping[str, TrialVerdict]) -> bool:
    """Whether a failed older check is of the kind of ``trial``, as far as kept verdicts tell; True of other checks."""
    if check.passed or check.trials is not None:
        return True
    kinds = {
        _kind(each, check)
        for each in trials
        if each.id in kept and kept[each.id]["reason"] == failure(check) and concerns(check, each)
    }
    return not kinds or _kind(trial, check) in kinds


def _kind(trial: Trial, check: EquivalenceResult) -> tuple[object, ...]:
    """What ``check`` depends on and an older record does not say."""
    if check.workload != trial.workload:  # a check of a loader
        return (trial.device,)
    return trial.classes, trial.device, trial.precision, trial.optimizer, trial.training is None, trial.servers


def _key(check: EquivalenceResult) -> tuple[object, ...]:
    options = (check.optimizer, *sorted({**check.options, **check.environment_variables}.items()))
    return (check.framework, check.strategy, check.workload, tuple(check.input_shape), check.workers, options)


def explanations(trial: Trial, checks: Sequence[EquivalenceResult]) -> list[str]:
    """Return what the checks of a user's module say of the joined batches of its workers."""
    found = (check.explanation for check in checks if trial.own and concerns(check, trial))
    return [explanation for explanation in dict.fromkeys(found) if explanation is not None]


def roundings(trials: Sequence[Trial], checks: Sequence[EquivalenceResult]) -> dict[str, float]:
    """Return, by trial id, how far right updates of a round are apart, relative to their length; checked trials only.

    Of the network, what the reference's rounding makes; of the loader, how far its samples led away.
    """
    found: dict[str, float] = {}
    for trial in trials:
        own = [check for check in checks if check.passed and concerns(check, trial)]
        apart = [check.update_rounding if check.workload == trial.workload else check.update_error for check in own]
        known = [each for each in apart if each is not None]
        if known and len(known) == len(own):
            found[trial.id] = max(known)
    return found


def unlike_others(trials: Sequence[EarlyLosses], checks: Sequence[EquivalenceResult]) -> dict[str, str]:
    """Return what ``deviating`` does, of trials with the distances that their checks recorded."""
    return deviating(trials, roundings([each.trial for each in trials], checks))


_AGREE = 1e-3
"""Relative: losses of right runs that are farther apart are spread by more than rounding, and nothing is claimed."""
_GROWTH = 100.0
"""By how much the distance of right updates may grow until the warm-up is over: of networks that amplify rounding,
or images that decoders give otherwise, nothing is claimed."""
_FEWEST_OTHERS = 2
_APART = 10.0
"""Times the range of the others' losses, that a loss is away from them at least."""


def deviating(trials: Sequence[EarlyLosses], rounding: Mapping[str, float]) -> dict[str, str]:
    """Return why trials did not train what the others of their group train, by trial id.

    A trial is named where at least two others agree with each other and none of its losses is near theirs. Strategies
    whose workers do not wait for each other, or exchange something else, have losses of their own, and networks with
    dropout have those of their library.

    Args:
        trials: those that would be ranked.
        rounding: of checked trials, as ``roundings`` returns it; about others nothing is claimed.
    """
    groups: dict[tuple[str, int, int], dict[str, list[tuple[float, ...]]]] = {}
    for each in trials:
        strategy = strategy_named(each.trial.strategy)
        alike = strategy.synchronous and strategy.exact and each.trial.training is None
        if alike and each.trial.id in rounding:
            for steps, losses in each.by_steps.items():
                group = groups.setdefault((each.trial.group, each.trial.seed, steps), {})
                group.setdefault(each.trial.id, []).extend(losses)
    found: dict[str, str] = {}
    for (_, _, steps), group in sorted(groups.items(), key=lambda item: item[0][2]):
        apart = max(_AGREE, _GROWTH * max(rounding[trial_id] for trial_id in group))
        if len(group) <= _FEWEST_OTHERS or _draws_masks(next(each.trial for each in trials if each.trial.id in group)):
            continue
        for trial_id, own in group.items():
            others = [losses for other, each in group.items() if other != trial_id for losses in each]
            if reason := _difference(own, others, steps, apart):
                found.setdefault(trial_id, reason)
    return found


def _draws_masks(trial: Trial) -> bool:
    """Whether the network has dropout, whose masks each library draws by itself, or cannot be built here."""
    try:
        workload = trial.build()
    except (WorkloadError, PluginError):
        return True
    return workload.own is not None or any(layer.kind == "dropout" for layer in workload.layers)


def _difference(
    own: Sequence[tuple[float, ...]], others: Sequence[tuple[float, ...]], steps: int, apart: float
) -> str | None:
    """Return the sentence about the first worker whose loss is away from all others'; None if no worker's is."""
    for rank, (mine, theirs) in enumerate(zip(zip(*own, strict=True), zip(*others, strict=True), strict=True)):
        usual = median(theirs)
        spread = max(theirs) - min(theirs)
        allowed = max(apart * abs(usual), _APART * spread)
        if spread <= _AGREE * abs(usual) and all(abs(loss - usual) > allowed for loss in mine):
            return (
                f"{WRONG}: after {steps} steps worker {rank} had a loss of "
                f"{median(mine):.6g}, and the others of its group have {usual:.6g}"
            )
    return None
