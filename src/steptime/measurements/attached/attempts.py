"""The processes of an attached job, put together: by attempt and rank, and their steps by number."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from steptime.measurements.attached.process_files import ProcessLines
from steptime.measurements.attached.process_lines import StepLine

_RANK_VARIABLES = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_ATTEMPT_VARIABLE = "TORCHELASTIC_RESTART_COUNT"
_TO_ONE = {"send", "recv", "recv_anysource"}
"""Kinds of collectives between two processes, of which a pipeline is made."""


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
        """How many processes say that they train together."""
        return max((each.place.world for each in self.processes.values() if each.place), default=len(self.processes))

    @cached_property
    def boots(self) -> dict[int, str]:
        """By rank, what processes with one clock have in common."""
        return {rank: each.process.boot or each.process.host for rank, each in self.processes.items()}

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
        counts = {rank: each.steps[-1].number + 1 if each.steps else 0 for rank, each in self.processes.items()}
        if self.is_whole and max(counts.values()) - min(counts.values()) > 1:
            least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            return (
                f"ranks differ in their number of steps: rank {least} has {counts[least]}, rank {most} {counts[most]}"
            )
        for number in kept:
            steps = self.steps[number]
            if len({step.micro_steps for step in steps}) > 1:
                return f"step {number} has different numbers of micro-steps: {_listed(steps, self.ranks)}"
            kinds = [{name: count for name, (count, _, _) in step.collectives.items()} for step in steps]
            if any(each.keys() != kinds[0].keys() for each in kinds):
                return f"ranks make different collectives in step {number}"
        return None

    def is_pipeline(self, kept: Iterable[int]) -> bool:
        """Whether processes send to one another, one to one, within steps."""
        return any(
            name.rpartition(":")[2] in _TO_ONE
            for number in kept
            for step in self.steps[number]
            for name in step.collectives
        )


def _listed(steps: Sequence[StepLine], ranks: Sequence[int]) -> str:
    found: dict[int, int] = {}
    for rank, step in zip(ranks, steps, strict=True):
        found.setdefault(step.micro_steps, rank)
    return ", ".join(f"{count} on rank {rank}" for count, rank in found.items())


@dataclass
class _Group:
    attempt: int
    world: int | None
    processes: dict[int, ProcessLines] = field(default_factory=dict)

    def takes(self, rank: int, found: ProcessLines) -> bool:
        world = found.place.world if found.place else None
        alike = (self.attempt, self.world) == (attempt_of(found), world)
        return alike and rank not in self.processes and self.overlaps(found)

    def overlaps(self, found: ProcessLines) -> bool:
        """Whether a process trained while those of the group did; clocks of other hosts are not compared."""
        begin, end = _span(found)
        spans = [_span(each) for each in self.processes.values() if each.process.boot == found.process.boot]
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
            group = _Group(attempt_of(each), each.place.world if each.place else None)
            groups.append(group)
        group.processes[rank] = each
    return [Attempt(group.attempt, dict(sorted(group.processes.items()))) for group in groups]


def rank_of(found: ProcessLines) -> int:
    """Return the rank by the framework, else by the launcher's variables, else 0."""
    if found.place is not None:
        return found.place.rank
    return next((number for name in _RANK_VARIABLES if (number := _number(found, name)) is not None), 0)


def attempt_of(found: ProcessLines) -> int:
    """Return how often torchrun had started the job anew."""
    return _number(found, _ATTEMPT_VARIABLE) or 0


def _number(found: ProcessLines, variable: str) -> int | None:
    text = found.process.environment.get(variable, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004 - digits


def _span(found: ProcessLines) -> tuple[int, int]:
    return found.steps[0].begin_ns, found.steps[-1].end_ns
