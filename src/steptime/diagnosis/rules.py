"""All rules, and what they say of a study."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from steptime.analysis.message_times import NetSummary
from steptime.analysis.summary_form import Summary, TrialSummary
from steptime.catalog.manifest import Manifest, load_manifests
from steptime.diagnosis import communication, computation, workers
from steptime.diagnosis.diagnosed_trial import DiagnosedTrial, Exchanged
from steptime.diagnosis.form import Diagnosis, EvidenceNumber, TrialFinding, Unsettled
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.diagnosis.verification import record_of_rule
from steptime.flags import FOREIGN_CORES
from steptime.results.ablation_records import AblationLaunch
from steptime.results.json_form import Interval
from steptime.results.record_kinds import ABLATION
from steptime.results.store import Store

RULES: tuple[DiagnosisRule, ...] = (
    communication.EXPOSED,
    communication.LATENCY,
    communication.BANDWIDTH,
    communication.SERVERS,
    workers.PERSISTENT,
    workers.TRANSIENT,
    workers.OVERSUBSCRIBED,
    workers.IDLE,
    computation.LOADER,
    computation.COPIES,
    computation.UPDATE,
    computation.BATCH,
    computation.OVERHEAD,
    computation.HOST,
    computation.PRECISION,
    workers.THROTTLED,
    workers.MEMORY,
)
"""A new rule is a row here and its place in the module of its family."""
ALL_RULES = (workers.NOISE, *RULES)
"""With the rule that silences all others."""


def diagnose(store: Store, summary: Summary, net: NetSummary | None = None) -> Diagnosis:
    """Return what the rules say of every trial that was measured.

    Args:
        store: the results folder.
        summary: of it.
        net: what the network benchmark found, if it was run into the same folder.
    """
    trials = {each.id: each for each in store.trials()}
    manifests = load_manifests()
    loading = {verdict.rows[0].trial: verdict for verdict in summary.loaders if verdict.rows}
    measured = [each for each in summary.trials if each.status in {"ok", "unranked"} and each.step_time_s.mean]
    looked_at = [
        DiagnosedTrial(
            trial=trials[each.id],
            summary=each,
            machine=summary.machine,
            manifest=_manifest(manifests, each),
            loading=loading.get(each.id),
            exchanged=exchanged_of(store.records(ABLATION, each.id)),
            links=net.rows if net else (),
            trivial_step_s=_trivial(each, measured),
        )
        for each in measured
    ]
    return diagnosis_of(looked_at)


def diagnosis_of(looked_at: Sequence[DiagnosedTrial]) -> Diagnosis:
    """Return what the rules say of trials, largest predicted gain first."""
    said = [each for at in looked_at for each in _said_of(at)]
    findings = [each for each in said if isinstance(each, TrialFinding)]
    findings.sort(key=lambda each: (each.rule != workers.NOISE.name, -(each.gain.value or 0.0)))
    return Diagnosis(findings=findings, unsettled=[each for each in said if isinstance(each, Unsettled)])


def _said_of(at: DiagnosedTrial) -> Iterator[TrialFinding | Unsettled]:
    noise = _judged(workers.NOISE, at)
    if noise is not None:
        yield noise
        return
    for rule in RULES:
        found = _judged(rule, at)
        if found is not None:
            yield found


def _judged(rule: DiagnosisRule, at: DiagnosedTrial) -> TrialFinding | Unsettled | None:
    number = rule.number(at)
    if number is None or number.value <= rule.least:
        return None
    claim = rule.claim(at, number)
    if claim is None:
        return None
    foreign = at.summary.noise.get("foreign_cpu_cores") or 0.0
    if rule.alone and foreign > FOREIGN_CORES:
        reason = f"{rule.title}: {_shown(number, rule)}, but other programs kept {foreign:.2g} cores busy meanwhile"
        return Unsettled(rule=rule.name, trial=at.trial.id, reason=reason)
    if number.low is None:
        reason = f"a single launch has no interval of its {rule.title}"
        return Unsettled(rule=rule.name, trial=at.trial.id, reason=reason)
    if number.low <= rule.least:
        bounds = f"{_shown(number, rule)} is not shown to be above {_one(rule.least, rule)}"
        return Unsettled(rule=rule.name, trial=at.trial.id, reason=f"{rule.title}: {bounds}; more launches would tell")
    return _finding(rule, at, number, claim)


def _finding(rule: DiagnosisRule, at: DiagnosedTrial, number: Interval, claim: Claim) -> TrialFinding:
    own = EvidenceNumber(what=rule.title, value=number, unit=rule.unit)
    return TrialFinding(
        rule=rule.name,
        trial=at.trial.id,
        claim=claim.claim,
        evidence=[own, *claim.evidence],
        gain=claim.gain,
        change=claim.change,
        overrides=list(claim.overrides),
        disproof=rule.disproof,
        record=record_of_rule(rule.name),
    )


def _shown(number: Interval, rule: DiagnosisRule) -> str:
    value, low, high = (_one(each, rule) for each in (number.value, number.low or 0.0, number.high or 0.0))
    return f"{value} ({low} to {high})"


def _one(value: float, rule: DiagnosisRule) -> str:
    return f"{100 * value:.0f} %" if rule.unit == "share" else f"{value:.3g}"


def exchanged_of(launches: Sequence[AblationLaunch]) -> Exchanged | None:
    """Return the messages of a step as frameworks saw them; None if none of them marks any."""
    seen = [worker for launch in launches for worker in launch.workers if worker.transfers and worker.marked]
    if not seen:
        return None
    pieces = float(np.mean([len(each.transfers) / len(each.marked) for each in seen]))
    sent = float(np.mean([sum(piece[1] for piece in each.transfers) / len(each.marked) for each in seen]))
    return Exchanged(pieces, sent)


def _manifest(manifests: Mapping[str, Manifest], trial: TrialSummary) -> Manifest | None:
    return manifests.get(trial.framework)


def _trivial(trial: TrialSummary, measured: Sequence[TrialSummary]) -> float | None:
    """Return the shortest step of another workload by the same framework, strategy and number of workers."""
    alike = ("framework", "strategy", "workers", "servers", "device", "threads")
    steps = [
        each.step_time_s.mean
        for each in measured
        if each.workload != trial.workload
        and each.step_time_s.mean is not None
        and all(getattr(each, name) == getattr(trial, name) for name in alike)
    ]
    shortest = min(steps, default=None)
    own = trial.step_time_s.mean
    return shortest if shortest is not None and own is not None and shortest < own else None
