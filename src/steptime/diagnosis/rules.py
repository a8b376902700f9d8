"""All rules, about a study's trials and about a user's own script, and what they say of them."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from steptime.analysis.message_times import NetSummary
from steptime.analysis.summary_form import Summary, TrialSummary
from steptime.attached.form import AttachedRun
from steptime.catalog.manifest import find_manifest
from steptime.catalog.workloads.costs import costs
from steptime.diagnosis import communication, computation, input_rules, own_script, workers
from steptime.diagnosis.diagnosed_trial import DiagnosedTrial, Exchanged
from steptime.diagnosis.form import OWN_SCRIPT, Diagnosis, TrialFinding, Unsettled
from steptime.diagnosis.own_script import ScriptRule
from steptime.diagnosis.rule import DiagnosisRule, worth
from steptime.errors import SteptimeError
from steptime.results.ablation_records import AblationLaunch
from steptime.results.record_kinds import ABLATION, TIMING
from steptime.results.records import Launch
from steptime.results.store import Store
from steptime.study.trial import Trial

RULES: tuple[DiagnosisRule[DiagnosedTrial] | ScriptRule, ...] = (
    workers.NOISE,
    communication.EXPOSED,
    communication.LATENCY,
    communication.BANDWIDTH,
    communication.SERVERS,
    workers.PERSISTENT,
    workers.TRANSIENT,
    workers.OVERSUBSCRIBED,
    workers.IDLE,
    input_rules.LOADER,
    input_rules.COPIES,
    computation.UPDATE,
    computation.BATCH,
    computation.OVERHEAD,
    computation.HOST,
    computation.PRECISION,
    workers.THROTTLED,
    workers.MEMORY,
    own_script.SEPARATE,
    own_script.HOST,
    own_script.INPUT,
    own_script.EXCHANGE,
    own_script.STRAGGLER,
    own_script.GAP,
    own_script.PASSES,
    own_script.GARBAGE,
    own_script.CHECKPOINT,
)
"""A new rule is a row here and its place in the module of its family; the first of each kind silences the others."""


def script_findings(run: AttachedRun) -> list[TrialFinding]:
    """Return what the rules say of an attached run, certain gains before possible ones, the larger first.

    Intervals of shares are those of the steps of this run (95 %); another run may differ by more. Ranks that train
    separate models have something else to change first.
    """
    foreign = run.noise.get("foreign_cpu_cores") or 0.0
    judged = [rule.judge(run, OWN_SCRIPT, foreign) for rule in RULES if isinstance(rule, ScriptRule)]
    findings = [each for each in judged if isinstance(each, TrialFinding)]
    separate = [each for each in findings if each.rule == own_script.SEPARATE.name]
    return separate or sorted(findings, key=worth)


def diagnose(store: Store, summary: Summary, net: NetSummary | None = None) -> Diagnosis:
    """Return what the rules say of every trial that was measured.

    Args:
        store: the results folder.
        summary: of it.
        net: what the network benchmark found, if it was run into the same folder.
    """
    trials = {each.id: each for each in store.trials()}
    loading = {verdict.rows[0].trial: verdict for verdict in summary.loaders if verdict.rows}
    measured = [each for each in summary.trials if each.status in {"ok", "unranked"} and each.step_time_s.mean]
    looked_at = [
        DiagnosedTrial(
            trial=trials[each.id],
            summary=each,
            machine=summary.machine,
            manifest=find_manifest(each.framework),
            loading=loading.get(each.id),
            exchanged=exchanged_of(store.records(ABLATION, each.id))
            or counted_buckets(trials[each.id], store.iter_records(TIMING, each.id)),
            links=net.rows if net else (),
            trivial_step_s=_trivial(each, measured),
        )
        for each in measured
    ]
    return diagnosis_of(looked_at)


def diagnosis_of(looked_at: Sequence[DiagnosedTrial]) -> Diagnosis:
    """Return what the rules say of trials, largest predicted gain first."""
    said = [each for at in looked_at for each in _judgements(at)]
    findings = [each for each in said if isinstance(each, TrialFinding)]
    findings.sort(key=lambda each: (each.rule != workers.NOISE.name, *worth(each)))
    return Diagnosis(findings=findings, unsettled=[each for each in said if isinstance(each, Unsettled)])


def _judgements(at: DiagnosedTrial) -> Iterator[TrialFinding | Unsettled]:
    foreign = at.summary.noise.get("foreign_cpu_cores") or 0.0
    noise = workers.NOISE.judge(at, at.trial.id, foreign)
    if noise is not None:
        yield noise
        return
    judged = (rule.judge(at, at.trial.id, foreign) for rule in RULES if not isinstance(rule, ScriptRule))
    yield from filter(None, judged)


def exchanged_of(launches: Sequence[AblationLaunch]) -> Exchanged | None:
    """Return the messages of a step as frameworks saw them; None if none of them marks any."""
    seen = [worker for launch in launches for worker in launch.workers if worker.transfers and worker.marked]
    if not seen:
        return None
    pieces = float(np.mean([len(each.transfers) / len(each.marked) for each in seen]))
    sent = float(np.mean([sum(piece[1] for piece in each.transfers) / len(each.marked) for each in seen]))
    return Exchanged(pieces, sent)


def counted_buckets(trial: Trial, launches: Iterable[Launch]) -> Exchanged | None:
    """Return the buckets of a step as the framework itself counted them, where its transfers cannot be seen.

    None of a framework that does not count them (the fact ``buckets``), and of a network of somebody's own.
    """
    count = next((worker.facts.get("buckets") for launch in launches for worker in launch.workers), None)
    if not isinstance(count, int) or trial.own is not None:
        return None
    try:
        return Exchanged(float(count), float(costs(trial.build()).gradient_bytes))
    except SteptimeError:  # a workload of somebody's that is not installed here
        return None


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
