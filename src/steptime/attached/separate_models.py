"""Whether the ranks of an attempt train one model: what they exchange, and whether their weights are the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steptime.attached.attempts import Attempt, launcher_of
from steptime.results.attached_files import ProcessLines
from steptime.results.attached_lines import StepLine, WeightsLine
from steptime.units import format_bytes

_NO_DATA = {"barrier", "monitored_barrier", "wait", "_broadcast_coalesced"}
"""Kinds of collectives that carry no gradients: the last is DDP's broadcast of buffers."""
_OF_GRADIENTS = 0.01
"""Of the bytes of a network's gradients, that a step must move to exchange them: less is a loss, or a count."""
_CLOSE = 1e-3
"""Relative difference of sums of weights, above which rounding is not the reason."""
_REMOTE_CALLS = "torch.distributed.rpc"
_MPI = ("mpiexec", "Open MPI's mpiexec", "srun")


@dataclass(frozen=True)
class ComparedWeights:
    """The weights of all ranks behind the same step."""

    step: int
    equal: bool
    """Of those that were looked at."""
    whole: bool
    """Whether ranks hold none in pieces, which are not looked at."""
    close: bool


def compared_weights(attempt: Attempt) -> ComparedWeights | None:
    """Return whether the ranks hold the same weights behind the latest step that all have on record; None without."""
    by_rank = [{each.step: each for each in process.weights if each.sums} for process in attempt.processes.values()]
    common = set.intersection(*map(set, by_rank)) if by_rank else set()
    if len(by_rank) < 2 or not common:  # noqa: PLR2004 - to compare
        return None
    step = max(common)
    lines = [each[step] for each in by_rank]
    if len({(line.parameters, len(line.sums)) for line in lines}) > 1:
        return None
    return ComparedWeights(
        step,
        equal=all(line.sums == lines[0].sums for line in lines),
        whole=not any(line.pieces for line in lines),
        close=all(_are_close(line, lines[0]) for line in lines),
    )


def _are_close(line: WeightsLine, other: WeightsLine) -> bool:
    pairs = [(a, b) for a, b in zip(line.sums, other.sums, strict=True) if a is not None and b is not None]
    return all(abs(a - b) <= _CLOSE * max(abs(a), abs(b)) for a, b in pairs)


def separate_models(attempt: Attempt) -> str | None:
    """Return a sentence about ranks that exchange no gradients, with the cause as far as it was seen; None if they do.

    Where there is a way by which ranks may exchange unseen, nothing shows that they do not.
    """
    processes = list(attempt.processes.values())
    lines = [line for process in processes for line in process.weights]
    if len(processes) < 2 or _may_exchange_unseen(attempt, lines) or averages_gradients(attempt):  # noqa: PLR2004 - ranks
        return None
    moved = max(map(_bytes_moved, _steps(attempt)), default=0)
    in_all = max((process.end.moved for process in processes if process.end), default=0)
    gradients = max((line.bytes for process in processes for line in process.gradients), default=0)
    weights = compared_weights(attempt)
    differ = weights is not None and not weights.close
    if moved > _OF_GRADIENTS * gradients or (in_all > max(gradients, moved) and not differ):  # in steps, or behind them
        return None
    what = "no gradients" if max(moved, in_all) else "nothing"
    said = f"the ranks exchange {what}: {len(processes)} separate models{_state(weights)}; {_cause(attempt, lines)}"
    return f"{said} (collectives carry {format_bytes(moved)} a step)" if moved else said


def _may_exchange_unseen(attempt: Attempt, lines: Sequence[WeightsLine]) -> bool:
    if any(line.channels or line.shared for line in lines) or any(map(_may_hide, _steps(attempt))):
        return True
    return attempt.is_joined and any(map(_hides_exchange, attempt.processes.values()))


def diverged_weights(attempt: Attempt) -> str | None:
    """Return a sentence about ranks whose weights differ, though DDP averages gradients or no exchange was seen."""
    weights = compared_weights(attempt)
    # Of split networks, between whose parts collectives move data, weights differ on purpose.
    if weights is None or weights.close or any(map(_bytes_moved, _steps(attempt))):
        return None
    differ = f"the ranks' weights differ after step {weights.step}"
    if averages_gradients(attempt):
        return f"{differ}, although DDP averages their gradients"
    lines = [line for process in attempt.processes.values() for line in process.weights]
    channels = sorted({name for line in lines for name in line.channels})
    if not channels or _REMOTE_CALLS in channels:  # their servers may be asynchronous
        return None
    return f"{differ}, and no exchange of gradients was seen ({', '.join(channels)} could hide one)"


def _state(weights: ComparedWeights | None) -> str:
    if weights is None:
        return ""
    if weights.equal:
        return f", of equal weights after step {weights.step}, as where all compute the same"
    return f", whose weights differ after step {weights.step}"


def _cause(attempt: Attempt, lines: Sequence[WeightsLine]) -> str:
    launcher = next((name for each in attempt.processes.values() if (name := launcher_of(each)[0])), "")
    if not attempt.is_joined:
        joining = sorted({name for line in lines for name in line.joining})
        why = f"no process group was made, and each process trains as if alone though {launcher} counts {attempt.world}"
        if "accelerate" in joining and launcher in _MPI:
            return f"{why} (accelerate joins what {launcher} starts on processors with Accelerator(cpu=True) alone)"
        return why
    if any(line.bypassed for line in lines):
        return "forward passes go around DistributedDataParallel, as by calling model.module"
    passes = [synchronised for step in _steps(attempt) for _, _, _, synchronised in step.backwards]
    if passes and all(each is False for each in passes):
        return "no_sync() holds in every backward pass"
    if lines and not any(line.data_parallel for line in lines):
        return "no network is wrapped in DistributedDataParallel, and no collective carries gradients"
    return "no collective carries gradients"


def _steps(attempt: Attempt) -> Iterator[StepLine]:
    return (step for process in attempt.processes.values() for step in process.steps)


def averages_gradients(attempt: Attempt) -> bool:
    """Return whether a backward pass was seen in which DDP averages gradients."""
    return any(synchronised is True for step in _steps(attempt) for _, _, _, synchronised in step.backwards)


def averages_by_horovod(attempt: Attempt) -> bool:
    """Return whether Horovod's optimizer was seen to hand over gradients: it averages them over all ranks."""
    places = [process.place for process in attempt.processes.values()]
    own = all(place is not None and place.by == "horovod" for place in places)
    return own and any(name.endswith("allreduce_async_") for step in _steps(attempt) for name in step.collectives)


def averages_shards(attempt: Attempt) -> bool:
    """Return whether FSDP or DeepSpeed average gradients over all ranks: by their groups, and by collectives seen.

    Groups of fewer ranks leave ranks that hold pieces of one layer or network.
    """
    lines = [process.weights[-1:] for process in attempt.processes.values()]
    wide = all(line and line[0].averaging == len(attempt.ranks) for line in lines)
    return wide and any(_reduces(name) for step in _steps(attempt) for name in step.collectives)


def _reduces(collective: str) -> bool:
    return "reduce" in collective.rpartition(":")[2]


def _may_hide(step: StepLine) -> bool:
    """Whether an exchange may lie in the step that is not seen: in a captured graph, or what is only waited for."""
    waits = sum(count for name, (count, _, _) in step.collectives.items() if name.endswith(":wait"))
    started = sum(count for count, _, _ in step.collectives.values()) - waits
    return "replay" in step.regions or waits > started


def _hides_exchange(process: ProcessLines) -> bool:
    return bool({"sync_wait", "comm_exposed"} & process.unseen.keys())


def _bytes_moved(step: StepLine) -> int:
    return sum(size for name, (_, size, _) in step.collectives.items() if name.rpartition(":")[2] not in _NO_DATA)
