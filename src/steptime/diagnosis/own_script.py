"""Rules about a user's own script, whose change is the user's to make: a claim names its line and what to do there."""

from collections.abc import Callable

from steptime.attached.few_steps import which_steps
from steptime.attached.form import AttachedRun, StepPart, WaitedFor
from steptime.attached.sampled_lines import at_line, library_of, whose_code
from steptime.attached.step_parts import is_in_turn, known_part, title_of
from steptime.diagnosis.gain import gain_of_rewriting, gain_without
from steptime.diagnosis.rule import Claim, DiagnosisRule
from steptime.flags import FOREIGN_CORES
from steptime.results.json_form import Interval


class ScriptRule(DiagnosisRule[AttachedRun]):
    """A rule about an attached run; the others are about a trial of a study."""


_PRESSED = 0.1
"""Share of the time, in which some process waits for a core, from which on others may hold up ranks."""
_MOST_SAVES: tuple[float, float] = (0.8, 1.0)
"""Of the time that saving takes, the part that goes with saving seldom."""


def _share(run: AttachedRun, seconds: Interval[float | None]) -> Interval | None:
    """Return seconds of a step as a share of it; None if either is not known."""
    if not run.step_s.value or seconds.value is None or seconds.low is None or seconds.high is None:
        return None
    return Interval(*(each / run.step_s.value for each in (seconds.value, seconds.low, seconds.high)))


def _share_of_part(name: str) -> Callable[[AttachedRun], Interval | None]:
    def share(run: AttachedRun) -> Interval | None:
        part = known_part(run.parts, name)
        return None if part is None else _share(run, _shorter(part))

    return share


def _where(run: AttachedRun, name: str) -> str:
    part = known_part(run.parts, name)
    return at_line(part.where if part else None)


def _input(run: AttachedRun, share: Interval) -> Claim:
    where = _where(run, "input_wait")
    change = f"load batches in other processes (DataLoader: num_workers), or make a batch cheaper{where}"
    if _has_finding(run, "loader_starts"):
        change = f"keep the loader's processes from epoch to epoch (DataLoader: persistent_workers){where}"
    part = known_part(run.parts, "input_wait")
    who = f"{which_steps(part.few)} wait for their batch" if part and part.few else "each step waits for its batch"
    return Claim(who, change, gain=gain_of_rewriting(share))


def _exposed(run: AttachedRun) -> Interval | None:
    part = known_part(run.parts, "comm_exposed")
    return None if part is None else _share(run, part.time_s)


def _with_waiting(run: AttachedRun, share: Interval) -> Interval:
    """Return the share of an exchange with none to all of the waiting, unless slow ranks cause it.

    Where ranks exchange less often, they wait for each other less often.
    """
    part = known_part(run.parts, "sync_wait")
    waited = None if part is None else _share(run, part.time_s)
    if waited is None or share.low is None or share.high is None or (run.waited_for and run.waited_for.ranks):
        return share
    return Interval(share.value + waited.value / 2, share.low, share.high + waited.value)


def _exchange(run: AttachedRun, share: Interval) -> Claim:
    change = (
        "exchange less or less often: larger buckets, gradients of 16 bits, no_sync() in all but the last micro-step"
    )
    return Claim("communication that nothing covers", change, gain=gain_of_rewriting(_with_waiting(run, share)))


def _waited(run: AttachedRun) -> Interval | None:
    whom = run.waited_for
    if whom is None or not whom.ranks:
        return None
    return _share(run, Interval(whom.others_wait_s.value, whom.others_wait_s.low, whom.others_wait_s.high))


def _straggler(run: AttachedRun, share: Interval) -> Claim | None:
    whom = run.waited_for
    if whom is None or _others_may_slow(run, whom):
        return None
    own, what = "their" if len(whom.ranks) > 1 else "its", title_of(whom.part) if whom.part else "steps"
    time = f"{own} time {what}" if what.startswith("between ") else f"{own} {what}"
    change = f"make {whom.title} as quick as the others: {time}{at_line(whom.where)}"
    return Claim(f"the others wait for {whom.title}", change, gain=gain_of_rewriting(share))


def _others_may_slow(run: AttachedRun, whom: WaitedFor) -> bool:
    """Return whether other programs may be why ranks are slow.

    Of n processes that share a core with a rank it has 1 / (1 + n), and its parts take n times longer, at most. Where
    processes hardly wait for a core, or a part takes longer than that explains, the cause is the ranks' own.
    """
    foreign, pressure = (run.noise.get(name) for name in ("foreign_cpu_cores", "cpu_pressure_share"))
    if not foreign or foreign <= FOREIGN_CORES or (pressure is not None and pressure < _PRESSED):
        return False
    before, after = (run.noise.get(f"load_1min_{when}") or 0.0 for when in ("before", "after"))
    others = max(foreign, before, after - len(run.ranks))
    return whom.part is None or (whom.part_share is not None and whom.part_share <= others)


def _largest_gap(run: AttachedRun) -> StepPart | None:
    gaps = [part for part in run.parts if part.gap and part.time_s.value is not None]
    return max(gaps, key=lambda part: _shorter(part).value or 0.0, default=None)


def _gap_share(run: AttachedRun) -> Interval | None:
    largest = _largest_gap(run)
    return None if largest is None else _share(run, _shorter(largest))


def _gap(run: AttachedRun, share: Interval) -> Claim | None:
    largest = _largest_gap(run)
    if largest is None:
        return None
    line, gain = at_line(largest.where), gain_of_rewriting(share)
    if _has_finding(run, "loader_elsewhere"):
        change = f"load batches in more processes (DataLoader: num_workers), or make a batch cheaper{line}"
        return Claim("each step waits for a thread that asks the loader", change, gain=gain)
    change = f"take that code out of the loop, run it every few steps, or in a thread{line}"
    if run.device is not None:
        change = f"do it less often, or compile it, such as the loss{line}"
    if library := library_of(largest.where):
        change = f"have {library} do that less often, or not at all, by its settings{line}"
    whom = run.waited_for
    alike = whom is not None and whom.part == largest.name
    one_cause = f": one cause with the waiting for {whom.title}, and one gain" if whom and alike else ""
    return Claim(f"{whose_code(largest.where)} runs {title_of(largest.name)}{one_cause}", change, gain=gain)


def _host_share(run: AttachedRun) -> Interval | None:
    """Return the share in which a host keeps the device waiting; what that does meanwhile is not known: a bound."""
    time, step_s = run.device, run.step_s.value
    if time is None or not step_s:
        return None
    least, most = time.waited, max(time.waited, 1.0 - time.worked)
    return Interval((least + most) / 2, least, most)


def _host(_: AttachedRun, share: Interval) -> Claim:
    fewer_calls = (
        "hand over more at once: torch.compile(mode='reduce-overhead') or a captured CUDA graph, a larger batch, an "
        "optimizer with fused=True or foreach=True, fewer small tensors"
    )
    claim = "the host is the limit: the device had done all it was given"
    return Claim(claim, fewer_calls, gain=gain_without(share))


def _passes(run: AttachedRun, share: Interval) -> Claim:
    change = (
        "take their numbers from the pass that trains, run them every few steps, or, of a teacher, once for all epochs"
        f"{_where(run, 'no_grad')}"
    )
    return Claim("steps have passes without gradient", change, gain=gain_of_rewriting(share))


def _garbage(_: AttachedRun, share: Interval) -> Claim:
    change = "call gc.freeze() after the set-up, or gc.disable() and gc.collect() on all ranks in the same steps"
    return Claim("Python collects garbage", change, gain=gain_of_rewriting(share))


def _checkpoint(run: AttachedRun, share: Interval) -> Claim:
    where = _where(run, "checkpoint")
    change = f"save every few hundred steps{where}"
    return Claim("steps save checkpoints", change, gain=gain_of_rewriting(share, _MOST_SAVES))


def _ranks_alone(run: AttachedRun) -> Interval | None:
    ranks = float(len(run.ranks))
    return Interval(ranks, ranks, ranks) if _has_finding(run, "separate_models") else None


def _separate(run: AttachedRun, _: Interval) -> Claim:
    """Return the claim about ranks that train models of their own, which predicts no gain."""
    sentence = next(each.sentence for each in run.findings if each.kind == "separate_models")
    join_them = (
        "to train one model, join the processes (init_process_group), wrap the network in DistributedDataParallel and "
        "call the wrapped one; what would gain time shows in a run of that"
    )
    return Claim(sentence, join_them)


def _has_finding(run: AttachedRun, kind: str) -> bool:
    return any(finding.kind == kind for finding in run.findings)


def _shorter(part: StepPart) -> Interval[float | None]:
    """Return by how much a step would be shorter without a part, with the waiting where ranks have it in turn."""
    return part.gain_s if is_in_turn(part) else part.time_s


SEPARATE = ScriptRule(
    "own_separate",
    "ranks that train alone",
    _ranks_alone,
    1.0,
    _separate,
    "weights are equal on all ranks although their batches differ",
    unit="count",
)
HOST = ScriptRule(
    "own_host",
    "time without work handed over",
    _host_share,
    0.1,
    _host,
    "a captured CUDA graph of the step takes as long",
)
INPUT = ScriptRule(
    "own_input",
    "waiting for input",
    _share_of_part("input_wait"),
    0.05,
    _input,
    "steps that reuse one batch take as long",
)
EXCHANGE = ScriptRule(
    "own_exchange", "exposed communication", _exposed, 0.1, _exchange, "steps take as long without an exchange"
)
STRAGGLER = ScriptRule(
    "own_straggler", "waiting for slow ranks", _waited, 0.05, _straggler, "steps take as long without those ranks"
)
GAP = ScriptRule("own_gap", "code that nothing marks", _gap_share, 0.05, _gap, "steps take as long without that code")
PASSES = ScriptRule(
    "own_passes",
    "passes without gradient",
    _share_of_part("no_grad"),
    0.1,
    _passes,
    "steps take as long without these passes",
)
GARBAGE = ScriptRule(
    "own_garbage",
    "garbage collection",
    _share_of_part("garbage_collection"),
    0.05,
    _garbage,
    "steps take as long after gc.disable()",
)
CHECKPOINT = ScriptRule(
    "own_checkpoint",
    "checkpoints in steps",
    _share_of_part("checkpoint"),
    0.05,
    _checkpoint,
    "steps take as long without checkpoints",
)
