"""What rules say of a user's own script, and whether a changed script gained what was predicted.

The change is the user's to make: a finding names the line of the script and what to do there. Both scripts are then run
alternately with the hook of ``steptime attach``, and each pair of runs counts as a block.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shlex import join

from steptime.analysis.compared.change import change_between
from steptime.analysis.compared.sides import ComparedSide
from steptime.attached.form import AttachedRun, StepPart
from steptime.attached.step_parts import at_line, is_in_turn, known_part, library_of, title_of, whose_code
from steptime.diagnosis.form import EvidenceNumber, TrialFinding
from steptime.diagnosis.rule import gain_without
from steptime.diagnosis.verification import AdviceOutcome, VerifiedAdvice, record_of_rule
from steptime.results.json_form import Interval

OWN_SCRIPT = "own script"
"""The trial of its findings."""


@dataclass(frozen=True)
class _ScriptClaim:
    claim: str
    change: str
    seconds: Interval[float | None]
    """Of a step."""


@dataclass(frozen=True)
class _ScriptRule:
    name: str
    title: str
    least: float
    """Share of the step above which the whole interval must be."""
    claim: Callable[[AttachedRun], _ScriptClaim | None]
    disproof: str


def _input(run: AttachedRun) -> _ScriptClaim | None:
    part = known_part(run.parts, "input_wait")
    if part is None:
        return None
    change = f"load batches in other processes (DataLoader: num_workers), or make a batch cheaper{at_line(part.where)}"
    if _is_found(run, "loader_starts"):
        change = (
            f"keep the loader's processes from epoch to epoch (DataLoader: persistent_workers){at_line(part.where)}"
        )
    return _ScriptClaim("each step waits for its batch", change, _shorter(part))


def _exchange(run: AttachedRun) -> _ScriptClaim | None:
    part = known_part(run.parts, "comm_exposed")
    if part is None:
        return None
    change = (
        "exchange less or less often: larger buckets, gradients of 16 bits, no_sync() in all but the last micro-step"
    )
    return _ScriptClaim("communication that nothing covers", change, part.time_s)


def _straggler(run: AttachedRun) -> _ScriptClaim | None:
    whom = run.waited_for
    if whom is None or not whom.ranks:
        return None
    own, what = "their" if len(whom.ranks) > 1 else "its", title_of(whom.part) if whom.part else "steps"
    change = f"make {whom.title} as quick as the others: {own} {what}{at_line(whom.where)}"
    wait = whom.others_wait_s
    return _ScriptClaim(f"the others wait for {whom.title}", change, Interval(wait.value, wait.low, wait.high))


def _gap(run: AttachedRun) -> _ScriptClaim | None:
    gaps = [part for part in run.parts if part.gap and part.time_s.value is not None]
    if not gaps:
        return None
    largest = max(gaps, key=lambda part: _shorter(part).value or 0.0)
    if _is_found(run, "loader_elsewhere"):
        change = (
            f"load batches in more processes (DataLoader: num_workers), or make a batch cheaper{at_line(largest.where)}"
        )
        return _ScriptClaim("each step waits for a thread that asks the loader", change, _shorter(largest))
    change = f"take that code out of the loop, run it every few steps, or in a thread{at_line(largest.where)}"
    if run.device is not None:
        change = f"do it less often, or compile it, such as the loss{at_line(largest.where)}"
    if library := library_of(largest.where):
        change = f"have {library} do that less often, or not at all, by its settings{at_line(largest.where)}"
    return _ScriptClaim(f"{whose_code(largest.where)} runs {title_of(largest.name)}", change, _shorter(largest))


def _host(run: AttachedRun) -> _ScriptClaim | None:
    """Name a host that keeps the device waiting; what that does meanwhile is not known, so that this is a bound."""
    time, step_s = run.device, run.step_s.value
    if time is None or not step_s:
        return None
    least, most = time.waited, max(time.waited, 1.0 - time.worked)
    waits = Interval((least + most) / 2 * step_s, least * step_s, most * step_s)
    return _ScriptClaim("the host is the limit: the device had done all it was given", _FEWER_CALLS, waits)


def _garbage(run: AttachedRun) -> _ScriptClaim | None:
    part = known_part(run.parts, "garbage_collection")
    if part is None:
        return None
    change = "call gc.freeze() behind the set-up, or gc.disable() and gc.collect() on all ranks in the same steps"
    return _ScriptClaim("Python collects garbage", change, _shorter(part))


def _is_found(run: AttachedRun, kind: str) -> bool:
    return any(finding.kind == kind for finding in run.findings)


def _shorter(part: StepPart) -> Interval[float | None]:
    """Return by how much a step would be shorter without a part, with the waiting where ranks have it in turn."""
    return part.gain_s if is_in_turn(part) else part.time_s


_FEWER_CALLS = (
    "hand over more at once: torch.compile(mode='reduce-overhead') or a captured CUDA graph, a larger batch, an "
    "optimizer with fused=True or foreach=True, fewer small tensors"
)
RULES: tuple[_ScriptRule, ...] = (
    _ScriptRule("own_host", "time without work handed over", 0.1, _host, "as long a step as a captured CUDA graph"),
    _ScriptRule("own_input", "waiting for input", 0.05, _input, "as short a step with one batch that is used again"),
    _ScriptRule("own_exchange", "exposed communication", 0.10, _exchange, "as long a step without an exchange"),
    _ScriptRule("own_straggler", "waiting for slow ranks", 0.05, _straggler, "as long a step without them"),
    _ScriptRule("own_gap", "code that nothing marks", 0.05, _gap, "as long a step without that code"),
    _ScriptRule("own_garbage", "garbage collection", 0.05, _garbage, "as long a step behind gc.disable()"),
)
"""A new rule about scripts is a row here."""
_JOIN = (
    "to train one model, join the processes (init_process_group), wrap the network in DistributedDataParallel and call "
    "the wrapped one; what would gain time shows in a run of that"
)


def script_findings(run: AttachedRun) -> list[TrialFinding]:
    """Return what the rules say of an attached run, largest predicted gain first.

    Intervals of shares are those of the steps of this run (95 %); another run may differ by more. Ranks that train
    separate models have something else to change first.
    """
    separate = next((each.sentence for each in run.findings if each.kind == "separate_models"), None)
    if separate is not None:
        return [_separate(run, separate)]
    found = [finding for rule in RULES if (finding := _judged(rule, run)) is not None]
    return sorted(found, key=lambda each: -(each.gain.value or 0.0))


def _separate(run: AttachedRun, sentence: str) -> TrialFinding:
    """Return the finding about ranks that train models of their own, which predicts no gain."""
    ranks = EvidenceNumber(what="ranks that train alone", value=Interval(len(run.ranks), None, None), unit="count")
    return TrialFinding(
        rule="own_separate",
        trial=OWN_SCRIPT,
        claim=sentence,
        evidence=[ranks],
        gain=Interval(None, None, None),
        change=_JOIN,
        overrides=[],
        disproof="weights are equal on all ranks of other batches",
        record=record_of_rule("own_separate"),
    )


def _judged(rule: _ScriptRule, run: AttachedRun) -> TrialFinding | None:
    said = rule.claim(run)
    if said is None or not run.step_s.value:
        return None
    value, low, high = (
        None if each is None else each / run.step_s.value
        for each in (said.seconds.value, said.seconds.low, said.seconds.high)
    )
    if value is None or low is None or high is None or low <= rule.least:
        return None
    share = Interval(value, low, high)
    return TrialFinding(
        rule=rule.name,
        trial=OWN_SCRIPT,
        claim=said.claim,
        evidence=[EvidenceNumber(what=rule.title, value=share, unit="share")],
        gain=gain_without(share),
        change=said.change,
        overrides=[],
        disproof=rule.disproof,
        record=record_of_rule(rule.name),
    )


def script_outcome(
    finding: TrialFinding, command: Sequence[str], run: AttachedRun, sides: tuple[ComparedSide, ComparedSide]
) -> AdviceOutcome:
    """Return what a changed script gained beside what a finding predicted.

    Args:
        finding: of ``run``, with a gain.
        command: of the changed script.
        run: of the script as it was.
        sides: runs of the script as it was, and of the changed one, that took turns.
    """
    ratio = change_between(*sides).trials[0]
    gain, measured = finding.gain, ratio.ratio
    if None in (gain.value, gain.low, gain.high, measured.low, measured.high):
        return AdviceOutcome(finding, join(command), None, "single runs do not show how runs differ")
    row = VerifiedAdvice(
        rule=finding.rule,
        framework=OWN_SCRIPT,
        strategy=run.back_end or "single",
        workload=OWN_SCRIPT,
        workers=run.world,
        batch_per_worker=0,
        overrides=join(command),
        predicted=gain.value or 0.0,
        predicted_low=gain.low or 0.0,
        predicted_high=gain.high or 0.0,
        measured=1.0 / measured.value,
        measured_low=1.0 / (measured.high or 1.0),
        measured_high=1.0 / (measured.low or 1.0),
        launches=min(ratio.launches),
        load=run.noise.get("foreign_cpu_cores") or 0.0,
    )
    return AdviceOutcome(finding, join(command), row, None)
