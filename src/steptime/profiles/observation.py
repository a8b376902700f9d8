"""What the records of one trial say, in a few numbers per launch: all that a fit looks at."""

from dataclasses import dataclass, field

from steptime.study.trial import OptionValue, ServerPlacement


@dataclass(frozen=True)
class Key:
    """What a performance model is fitted for: all of a trial but its size and its hosts."""

    framework: str
    strategy: str
    workload: str
    input_shape: tuple[int, ...]
    classes: int
    dataset: str | None
    loader: str
    loader_processes: int
    device: str
    precision: str
    threads: int
    options: tuple[tuple[str, OptionValue], ...]
    """Sorted by name; without those that ``Setting`` has."""

    def computes_as(self, other: "Key") -> bool:
        """Say whether workers of both compute the same, whatever they exchange."""
        mine, theirs = dict(self.options), dict(other.options)
        alike = all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())
        return alike and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__dataclass_fields__
            if name not in ("strategy", "options")
        )


@dataclass(frozen=True)
class Setting:
    """The size of a trial and what joins its workers; SI units."""

    workers: int
    batch: int
    """Per worker."""
    servers: int = 0
    placement: ServerPlacement | None = None
    hosts: int = 1
    """Of workers."""
    workers_per_host: int = 1
    emulated: bool = False
    """Whether the hosts are parts of one machine and share its cores."""
    bandwidth: float | None = None
    """Bytes per second that links between hosts were asked to have; None where nothing limits them."""
    delay_s: float = 0.0
    bucket_mb: float | None = None

    @property
    def crosses(self) -> bool:
        """Whether messages travel between hosts."""
        return self.hosts > 1 or (self.emulated and self.servers > 0)


@dataclass(frozen=True)
class Dissected:
    """One anatomy launch: seconds of a step, means over its blocks and workers; None is not known, which is not 0."""

    phases: dict[str, float | None]
    communication_s: float | None
    """All of it, hidden or not."""
    input_s: float | None
    """The loader alone."""
    persistent: float | None
    """What the slowest worker computes longer than the mean one on average over all steps, as a share."""
    transient: float | None
    """What the slowest of each step adds to that, as a share."""
    pieces: tuple[tuple[float, float], ...] = ()
    """Bytes of each piece of gradients, and the share of the backward pass after which it could go, in the order in
    which they went; empty where the framework does not show them."""


@dataclass(frozen=True)
class Observation:
    """One configuration as it was measured."""

    trial: str
    key: Key
    setting: Setting
    steps_s: tuple[float, ...]
    """The median step of each good launch."""
    step_count: int
    """Steps behind them."""
    dissected: tuple[Dissected, ...] = ()
    alpha_s: float | None = None
    """Of the links between hosts, measured before the launches; median over paths and launches."""
    rate: float | None = None
    """Likewise, bytes per second."""
    flags: tuple[str, ...] = field(default=())
