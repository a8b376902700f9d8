"""What the GPUs did while the steps ran, by the looks of the program that started the script: use, power and clocks."""

from collections.abc import Callable, Iterator, Sequence

from steptime.attached.form import AttachedFinding, GpuUse
from steptime.attached.step_parts import KeptSteps
from steptime.results.attached_files import AttachedHeader
from steptime.results.gpu_windows import OTHER, OWN, UNSEEN, GpuProcess, GpuWindow, NoGpus
from steptime.units import format_bytes, format_count

_NOTABLE = 0.1
"""Share of looks in which clocks are held back, or another process is there, that is worth a sentence."""
_FEWEST_LOOKS = 10
_MOST_DESCRIBED = 2
"""GPUs that have a sentence each."""
_GIGA = 1e9
_NAMED = 3
"""Other processes that a sentence names."""
_PART = "MIG"
"""In the name of a part of a divided GPU."""
BY_OTHERS = "the program that started the processes was not steptime attach, which reads GPUs in its own process"
TOO_SHORT = "the command ended before GPUs were looked at"
NOT_MEANWHILE = "no look at GPUs lies in the time of the steps"
OF_THE_WHOLE = "a part of a divided GPU: the driver has use, power and clocks of the whole alone"
NUMBERED_OTHERWISE = "the driver numbers processes otherwise than this system does, as seen from a container"
NOT_LISTED = "the driver lists no process of the run"
NO_REASONS = "the driver does not say whether clocks are held back"
Place = tuple[str, str, int]
"""Host, its boot, and the GPU's index."""


def why_no_gpus(lines: Sequence[GpuWindow | NoGpus], header: AttachedHeader) -> str:
    """Return why nothing is known of GPUs.

    Args:
        lines: of all hosts.
        header: of the run.
    """
    reasons = dict.fromkeys(line.reason for line in lines if isinstance(line, NoGpus))
    if reasons:
        return "; ".join(reasons)
    if lines:
        return NOT_MEANWHILE
    return BY_OTHERS if header.by_environment or header.imported else TOO_SHORT


def gpu_uses(lines: Sequence[GpuWindow | NoGpus], kept: KeptSteps) -> list[GpuUse]:
    """Return what the GPUs of the run did, of those with processes of it if the driver lists these.

    Args:
        lines: of all hosts.
        kept: the steps that are shown.
    """
    by_place: dict[Place, list[GpuWindow]] = {}
    for window in lines:
        if isinstance(window, GpuWindow):
            by_place.setdefault((window.host, window.boot, window.index), []).append(window)
    meanwhile = {place: _meanwhile(windows, kept) for place, windows in sorted(by_place.items())}
    used = [windows for windows in meanwhile.values() if any(_processes(windows, OWN))]
    return [_use(windows, kept) for windows in used or meanwhile.values() if windows]


def _meanwhile(windows: Sequence[GpuWindow], kept: KeptSteps) -> list[GpuWindow]:
    """Return the windows that lie in the time of the steps, at least by half; of a short run those that reach into it.

    Those of a host without a rank are left out.
    """
    boot = windows[0].boot
    places = [place for place, rank in enumerate(kept.attempt.ranks) if kept.attempt.boots[rank] == boot]
    if not places or not kept.numbers:
        return []
    first, last = (kept.attempt.steps[kept.numbers[end]] for end in (0, -1))
    begin, end = min(first[place].begin_ns for place in places), max(last[place].end_ns for place in places)
    inside = [(min(end, each.end_ns) - max(begin, each.begin_ns), each) for each in windows]
    most = [each for overlap, each in inside if 2 * overlap >= each.end_ns - each.begin_ns]
    return most or [each for overlap, each in inside if overlap > 0]


def _processes(windows: Sequence[GpuWindow], whose: str) -> Iterator[GpuProcess]:
    for window in windows:
        yield from (each for each in window.processes or () if each.whose == whose)


def _use(windows: Sequence[GpuWindow], kept: KeptSteps) -> GpuUse:
    last = windows[-1]
    looked = sum(window.looks for window in windows if window.held_looks is not None)
    causes = dict.fromkeys(cause for window in windows for cause in window.held_by)
    own = {each.pid for each in _processes(windows, OWN)}
    ranks = [
        rank
        for rank, process in kept.attempt.processes.items()
        if process.process.pid in own and kept.attempt.boots[rank] == last.boot
    ]
    sizes = [_own_memory(window) for window in windows if any(_processes([window], OWN))]
    known = [size for size in sizes if size is not None]
    return GpuUse(
        host=last.host,
        index=last.index,
        name=last.name,
        ranks=ranks,
        looks=sum(window.looks for window in windows),
        busy_share=_mean(windows, lambda window: window.busy),
        power_w=_mean(windows, lambda window: window.power_w),
        power_limit_w=last.limit_w,
        clock_hz=_mean(windows, lambda window: window.sm_hz),
        highest_clock_hz=last.highest_sm_hz,
        throttled_share=sum(window.held_looks or 0 for window in windows) / looked if looked else None,
        throttled_by={cause: sum(window.held_by.get(cause, 0) for window in windows) / looked for cause in causes}
        if looked
        else {},
        memory_used=max((window.used for window in windows if window.used is not None), default=None),
        memory_of_run=max(known) if known and len(known) == len(sizes) else None,
        memory_whole=last.memory,
        other_processes=_others(windows) if own else [],
        reason=_reason(windows, own=bool(own)),
    )


def _own_memory(window: GpuWindow) -> int | None:
    """Return the memory of the run's processes in a window; None if the driver does not say it of each."""
    sizes = [each.memory for each in _processes([window], OWN)]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _mean(windows: Sequence[GpuWindow], value: Callable[[GpuWindow], float | None]) -> float | None:
    """Return the mean over time."""
    known = [(seen, window.end_ns - window.begin_ns) for window in windows if (seen := value(window)) is not None]
    total = sum(length for _, length in known)
    return sum(seen * length for seen, length in known) / total if total > 0 else None


def _others(windows: Sequence[GpuWindow]) -> list[str]:
    """Return who else was there in a notable share of looks; the program's own processes are known to be there, too."""
    looks: dict[tuple[int, str], int] = {}
    for each in _processes(windows, OTHER):
        looks[each.pid, each.name] = looks.get((each.pid, each.name), 0) + each.looks
    whole = sum(window.looks for window in windows)
    return [f"{name or 'process'} {pid}" for (pid, name), seen in looks.items() if seen >= _NOTABLE * whole]


def _reason(windows: Sequence[GpuWindow], *, own: bool) -> str | None:
    reasons = []
    if all(window.busy is None for window in windows) and _PART in windows[-1].name:
        reasons.append(OF_THE_WHOLE)
    elif all(window.held_looks is None for window in windows):
        reasons.append(NO_REASONS)
    if not own:
        reasons.append(NUMBERED_OTHERWISE if any(_processes(windows, UNSEEN)) else NOT_LISTED)
    return "; ".join(reasons) or None


def gpu_findings(gpus: Sequence[GpuUse]) -> Iterator[AttachedFinding]:
    """Yield whose clocks were held back, and who else was on a GPU of the run."""
    held = [each for each in gpus if each.looks >= _FEWEST_LOOKS and (each.throttled_share or 0.0) >= _NOTABLE]
    if held:
        most = max(held, key=lambda gpu: gpu.throttled_share or 0.0)
        share, causes = most.throttled_share or 0.0, " and ".join(most.throttled_by)
        clock = with_limit(most.clock_hz, most.highest_clock_hz, _GIGA, "GHz")
        power = with_limit(most.power_w, most.power_limit_w, 1.0, "W")
        further = "".join(f", {text}" for text in (clock, power) if text)
        sentence = (
            f"{causes} held the clocks of {title(most, gpus)}{_and_more(held)} back in {100 * share:.0f} % of "
            f"{format_count(most.looks, 'look')}{further}"
        )
        yield AttachedFinding(kind="throttling", sentence=sentence, lost_s=None)
    shared = [each for each in gpus if each.other_processes]
    if shared:
        first = shared[0]
        named = ", ".join(first.other_processes[:_NAMED]) + (", …" if len(first.other_processes) > _NAMED else "")
        sentence = f"{title(first, gpus)}{_and_more(shared)} was shared with {named}, which this run did not start"
        yield AttachedFinding(kind="shared_gpu", sentence=sentence, lost_s=None)


def _and_more(several: Sequence[GpuUse]) -> str:
    return f" (and of {len(several) - 1} more)" if len(several) > 1 else ""


def title(gpu: GpuUse, gpus: Sequence[GpuUse]) -> str:
    """Return a GPU's number, with its host where there are several."""
    hosts = len({each.host for each in gpus}) > 1
    return f"GPU {gpu.index}{f' of host {gpu.host}' if hosts else ''}"


def with_limit(value: float | None, most: float | None, factor: float, unit: str) -> str:
    """Return ``412 W of 700``; "" if the value is not known."""
    if value is None:
        return ""
    return f"{value / factor:.3g} {unit}" + (f" of {most / factor:.3g}" if most else "")


def use_sentences(gpus: Sequence[GpuUse]) -> Iterator[str]:
    """Yield what each of a few GPUs did, of many the range."""
    if len(gpus) <= _MOST_DESCRIBED:
        yield from (f"{title(each, gpus)}: {', '.join(described(each))}." for each in gpus)
        return
    columns = (
        ("in use", "% of the time", [each.busy_share and 100 * each.busy_share for each in gpus]),
        ("", "W", [each.power_w for each in gpus]),
        ("", "GHz", [each.clock_hz and each.clock_hz / _GIGA for each in gpus]),
        ("throttled in", "% of looks", [each.throttled_share and 100 * each.throttled_share for each in gpus]),
    )
    ranges = [
        f"{before} {min(known):.3g} to {max(known):.3g} {unit}".strip()
        for before, unit, values in columns
        if (known := [value for value in values if value is not None])
    ]
    sizes = [each.memory_used for each in gpus if each.memory_used is not None]
    memory = [f"memory {format_bytes(min(sizes))} to {format_bytes(max(sizes))}"] if sizes else []
    yield f"{len(gpus)} GPUs: {', '.join([*ranges, *memory]) or 'the driver reports nothing about them'}."


def described(gpu: GpuUse) -> list[str]:
    """Return use, power, clock, what held it back, and memory, as far as they are known."""
    memory = ""
    if gpu.memory_used is not None:
        whole = f" of {format_bytes(gpu.memory_whole)}" if gpu.memory_whole else ""
        memory = f"memory {format_bytes(gpu.memory_used)}{whole}"
    parts = (
        "" if gpu.busy_share is None else f"in use {100 * gpu.busy_share:.0f} % of the time",
        with_limit(gpu.power_w, gpu.power_limit_w, 1.0, "W"),
        with_limit(gpu.clock_hz, gpu.highest_clock_hz, _GIGA, "GHz"),
        "" if gpu.throttled_share is None else throttled(gpu),
        memory,
    )
    return list(filter(None, parts)) or [gpu.reason or "the driver reports nothing about it"]


def throttled(gpu: GpuUse) -> str:
    """Return in how many looks clocks were held back, and by what."""
    looks = format_count(gpu.looks, "look")
    if not gpu.throttled_by:
        return f"never throttled in {looks}"
    return f"throttled by {' and '.join(gpu.throttled_by)} in {100 * (gpu.throttled_share or 0.0):.0f} % of {looks}"
