"""The processes of an attached job, put together: by attempt and rank, and their steps by number."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from steptime.results.attached_files import ProcessLines
from steptime.results.attached_lines import CollectiveInterval, StepLine

LAUNCHERS: Mapping[str, tuple[str, str, str]] = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
    "horovodrun": ("HOROVOD_RANK", "HOROVOD_RANK", "HOROVOD_SIZE"),
    "Open MPI's mpiexec": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "mpiexec": ("PMI_RANK", "PMI_RANK", "PMI_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_PROCID", "SLURM_NTASKS"),
    "the environment": ("RANK", "RANK", "WORLD_SIZE"),
}
"""By launcher: the variable that it alone sets, and those of rank and number of ranks."""
_ATTEMPT_VARIABLE = "TORCHELASTIC_RESTART_COUNT"
_PORT_VARIABLE = "MASTER_PORT"
BETWEEN_TWO = {"send", "recv", "recv_anysource"}
"""Kinds of collectives between two processes, of which a pipeline is made."""


class HostOfRanks(NamedTuple):
    """One of the hosts of a job; several may have the same name."""

    name: str
    boot: str
    """Of its kernel, where that is known."""


@dataclass(frozen=True)
class Attempt:
    """The processes that trained together: one of each rank."""

    number: int
    """How often the launcher had started the job anew before."""
    processes: Mapping[int, ProcessLines]
    """By rank, ascending."""

    @property
    def ranks(self) -> list[int]:
        return list(self.processes)

    @property
    def first_s(self) -> float:
        return min(each.process.begin_ns for each in self.processes.values()) * 1e-9

    @property
    def is_whole(self) -> bool:
        """Whether every process ended by itself."""
        return all(each.end for each in self.processes.values())

    @property
    def world(self) -> int:
        """How many processes train together, by the framework; where they believe to be alone, by their launcher."""
        worlds = [each.place.world for each in self.processes.values() if each.place]
        if max(worlds, default=1) > 1 or len(self.processes) < 2:  # noqa: PLR2004 - of one alone no launcher is asked
            return max(worlds, default=1)
        sizes = [launcher_of(each)[2] or 0 for each in self.processes.values()]
        return max(len(self.processes), *sizes)

    @property
    def is_joined(self) -> bool:
        """Whether a framework has made a group of its processes."""
        return any(each.place is not None and each.place.world > 1 for each in self.processes.values())

    @cached_property
    def boots(self) -> dict[int, str]:
        """By rank, what processes with one clock have in common."""
        return {rank: each.process.boot or each.process.host for rank, each in self.processes.items()}

    @cached_property
    def hosts(self) -> dict[int, HostOfRanks]:
        """By rank, ascending; containers with names of their own are hosts too."""
        return {rank: HostOfRanks(each.process.host, each.process.boot or "") for rank, each in self.processes.items()}

    @cached_property
    def steps(self) -> dict[int, list[StepLine]]:
        """By number, the step of every rank in the order of ``ranks``; those that a rank lacks are left out."""
        by_rank = [{step.number: step for step in each.steps} for each in self.processes.values()]
        common = set.intersection(*(set(each) for each in by_rank)) if by_rank else set()
        return {number: [each[number] for each in by_rank] for number in sorted(common)}

    def mismatch(self, kept: Iterable[int]) -> str | None:
        """Return why steps of the same number are not the same step on all ranks; None if they are.

        Args:
            kept: the numbers of the steps that are looked at.
        """
        lacking = sorted(set(range(self.world)) - set(self.processes))
        if lacking:
            named = ", ".join(map(str, lacking[:4])) + (", …" if len(lacking) > 4 else "")  # noqa: PLR2004
            return f"nothing is known of rank {named} of {self.world}"
        kept = list(kept)
        if (uneven := self.uneven()) is not None and not self._meet(kept):
            return uneven
        for number in kept:
            steps = self.steps[number]
            if len({step.micro_steps for step in steps}) > 1:
                return f"step {number} has different numbers of micro-steps: {_listed(steps, self.ranks)}"
            kinds = [{name: count for name, (count, _, _) in step.collectives.items()} for step in steps]
            if any(each.keys() != kinds[0].keys() for each in kinds):
                return f"ranks run different collectives in step {number}"
        return None

    def uneven(self) -> str | None:
        """Return a sentence if ranks that all ended by themselves took different numbers of steps, else None."""
        counts = {rank: each.steps[-1].number + 1 if each.steps else 0 for rank, each in self.processes.items()}
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if not self.is_whole or counts[most] - counts[least] <= 1:
            return None
        return f"ranks differ in their number of steps: rank {least} has {counts[least]}, rank {most} {counts[most]}"

    def _meet(self, kept: Sequence[int]) -> bool:
        """Whether ranks average gradients in steps of the same number, by one clock: none goes on before all came.

        So it is where DDP joins ranks of which some have fewer batches.
        """
        if len(set(self.boots.values())) > 1:
            return False
        passes = [
            each for number in kept for each in zip(*(step.backwards for step in self.steps[number]), strict=False)
        ]
        return bool(passes) and all(
            all(synchronised for _, _, _, synchronised in each)
            and max(last for _, last, _, _ in each) <= min(end for _, _, end, _ in each)
            for each in passes
        )

    def is_pipeline(self, kept: Iterable[int]) -> bool:
        """Whether ranks send to one another between forward and backward passes, each in another order.

        Where all send and receive in one order, or do so behind their backward passes alone, each has a whole network:
        a ring or neighbours that exchange gradients or weights, or parts of a sequence.
        """
        return any(
            _sends(steps)
            and not have_one_order([step.intervals for step in steps])
            and any(map(_sends_before_its_last_backward, steps))
            for steps in (self.steps[number] for number in kept)
        )


def have_one_order(calls: Sequence[Sequence[CollectiveInterval]]) -> bool:
    """Return whether ranks make the same calls in the same order in a step, as far as those are on record."""
    orders = [[kind for kind, _, _, _ in own] for own in calls]
    shortest = min(map(len, orders))
    return all(each[:shortest] == orders[0][:shortest] for each in orders)


def send_alone(calls: Sequence[CollectiveInterval]) -> bool:
    """Return whether all calls of a rank in a step are between two ranks, and waits for them."""
    return bool(calls) and all(kind in {*BETWEEN_TWO, "wait"} for kind, _, _, _ in calls)


def _sends(steps: Iterable[StepLine]) -> bool:
    return any(name.rpartition(":")[2] in BETWEEN_TWO for step in steps for name in step.collectives)


def _sends_before_its_last_backward(step: StepLine) -> bool:
    last = max((end for _, _, end, _ in step.backwards), default=0)
    return any(kind in BETWEEN_TWO and (not last or begin < last) for kind, _, begin, _ in step.intervals)


def _listed(steps: Sequence[StepLine], ranks: Sequence[int]) -> str:
    found: dict[int, int] = {}
    for rank, step in zip(ranks, steps, strict=True):
        found.setdefault(step.micro_steps, rank)
    return ", ".join(f"{count} on rank {rank}" for count, rank in found.items())


@dataclass
class _Group:
    key: tuple[int, int, str | None]
    processes: dict[int, ProcessLines] = field(default_factory=dict)

    def takes(self, rank: int, found: ProcessLines) -> bool:
        return self.key == _key_of(found) and rank not in self.processes and self.overlaps(found)

    def overlaps(self, found: ProcessLines) -> bool:
        """Whether a process lived while those of the group did; clocks of other hosts are not compared."""
        begin, end = found.span_ns
        spans = [each.span_ns for each in self.processes.values() if each.process.boot == found.process.boot]
        return not spans or any(begin <= until and since <= end for since, until in spans)


def attempts_of(processes: Iterable[ProcessLines]) -> list[Attempt]:
    """Return the groups of processes that trained together, the earliest first; processes without a step are left out.

    A launcher that starts a job anew counts its attempts. A command that trains several times, one after the other or
    side by side, has as many groups.
    """
    groups: list[_Group] = []
    for each in sorted(processes, key=lambda found: found.process.begin_ns):
        if not each.steps:
            continue
        rank = rank_of(each)
        group = next((group for group in groups if group.takes(rank, each)), None)
        if group is None:
            group = _Group(_key_of(each))
            groups.append(group)
        group.processes[rank] = each
    return [Attempt(group.key[0], dict(sorted(group.processes.items()))) for group in groups]


def rank_of(found: ProcessLines) -> int:
    """Return the rank by the framework, else (also where it believes to be alone) by the launcher, else 0."""
    if found.place is not None and found.place.world > 1:
        return found.place.rank
    rank = launcher_of(found)[1]
    if rank is None and found.place is not None:
        return found.place.rank
    return rank or 0


def launcher_of(found: ProcessLines) -> tuple[str, int | None, int | None]:
    """Return which launcher started a process, and by its variables the rank and the number of ranks."""
    for name, (own, rank, size) in LAUNCHERS.items():
        if own in found.process.environment and (number := _number(found, rank)) is not None:
            return name, number, _number(found, size)
    return "", None, None


def attempt_of(found: ProcessLines) -> int:
    """Return how often torchrun had started the job anew."""
    return _number(found, _ATTEMPT_VARIABLE) or 0


def _number(found: ProcessLines, variable: str) -> int | None:
    text = found.process.environment.get(variable, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004 - digits


def _key_of(found: ProcessLines) -> tuple[int, int, str | None]:
    """Return what processes that train together have in common."""
    world = found.place.world if found.place else 1
    return attempt_of(found), world, found.process.environment.get(_PORT_VARIABLE)
