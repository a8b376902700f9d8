"""Which back ends can be measured, and the settings that a user's wishes expand into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from steptime.clusters.cluster import settled_cluster
from steptime.environments.kinds import find_ready
from steptime.errors import UsageError, choices_message
from steptime.frameworks.manifest import BackEndSupport, Manifest
from steptime.launchers.emulation.requirements import lacking
from steptime.measurements.net.records import NetSetting
from steptime.runner.preparation import environment_spec
from steptime.study.strategies import strategy_named

OPERATIONS = ("allreduce", "push_pull", "incast")
LAUNCHERS = ("auto", "local", "mpi", "emulated")


@dataclass(frozen=True)
class FrameworkBackEnd:
    """A back end of a room."""

    name: str
    manifest: Manifest
    support: BackEndSupport

    @property
    def launcher(self) -> str:
        """What starts its workers on this host: ``local``, or ``mpi``."""
        return self.manifest.launcher_for(self.support.strategy, self.support.options)

    @property
    def options(self) -> dict[str, bool | int | float | str]:
        """Every option of its strategy, with its default or what chooses this back end."""
        applying = self.manifest.options_for(self.support.strategy)
        return {name: self.support.options.get(name, option.default) for name, option in applying.items()}


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    workers: Sequence[int]
    sizes: Sequence[int]
    """In bytes."""
    operations: Sequence[str] = ()
    """Empty for all that a back end has."""
    launcher: str = "auto"
    hosts: int | None = None
    """Of an emulated cluster; None for one per worker."""
    bandwidth_bits_per_s: float | None = None
    delay_s: float = 0.0
    servers: int = 1
    rounds: int = 5
    runs: int = 10
    seconds: float = 1.0
    device_count: int = 0
    """CUDA devices of this host."""


@dataclass
class NetPlan:
    """The settings, and what cannot be."""

    settings: list[NetSetting] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def back_ends_of(manifests: Mapping[str, Manifest]) -> dict[str, FrameworkBackEnd]:
    """Return all back ends of all rooms, by name."""
    return {
        name: FrameworkBackEnd(name, manifest, support)
        for manifest in manifests.values()
        for name, support in sorted(manifest.back_ends.items())
    }


def chosen(names: Sequence[str], known: Mapping[str, FrameworkBackEnd]) -> tuple[list[FrameworkBackEnd], list[str]]:
    """Return the back ends ``names``, each once, and a mistake for every one that is unknown."""
    mistakes = [choices_message("back end", name, known) for name in names if name not in known]
    return [known[name] for name in dict.fromkeys(names) if name in known], mistakes


def ready(known: Mapping[str, FrameworkBackEnd]) -> tuple[list[FrameworkBackEnd], list[str]]:
    """Return the back ends whose environments exist, and one line for each other."""
    manifests = {each.manifest.name: each.manifest for each in known.values()}
    there = {name for name, manifest in manifests.items() if find_ready(environment_spec(manifest))}
    found = [each for each in known.values() if each.manifest.name in there]
    missing = [
        f"{each.name}: no environment yet; make it with 'steptime env create {each.manifest.name}'"
        for each in known.values()
        if each.manifest.name not in there
    ]
    return found, missing


def operation(name: str) -> str:
    """Return ``name`` if it is an operation; raises UsageError with the choices."""
    if name not in OPERATIONS:
        raise UsageError(choices_message("operation", name, OPERATIONS))
    return name


def expand_net(wanted: Sequence[FrameworkBackEnd], wishes: Wishes) -> NetPlan:
    """Return the settings of all back ends and worker counts, and one line for each that cannot be.

    Raises UsageError where nothing is left, or the wishes contradict each other.
    """
    _require_sense(wishes)
    plan = NetPlan()
    for back_end in wanted:
        reason = _why_not(back_end, wishes)
        if reason:
            plan.skipped.append(f"{back_end.name}: {reason}")
            continue
        for workers in wishes.workers:
            hosts = wishes.hosts or workers
            if back_end.support.device == "cuda" and workers > wishes.device_count:
                plan.skipped.append(
                    f"{back_end.name}, {workers} workers: this machine has {wishes.device_count} CUDA devices"
                )
            elif wishes.launcher == "emulated" and workers < hosts:
                plan.skipped.append(f"{back_end.name}, {workers} workers: fewer than the {hosts} hosts")
            else:
                plan.settings.append(_setting(back_end, workers, wishes))
    if not plan.settings:
        raise UsageError(["nothing can be measured", *plan.skipped])
    return plan


def _require_sense(wishes: Wishes) -> None:
    mistakes = []
    if wishes.launcher not in LAUNCHERS:
        mistakes.append(choices_message("launcher", wishes.launcher, LAUNCHERS))
    elif wishes.launcher != "emulated":
        given = {
            "--hosts": wishes.hosts is not None,
            "--bandwidth": wishes.bandwidth_bits_per_s is not None,
            "--delay": wishes.delay_s > 0,
        }
        mistakes += [f"{name} needs --launcher emulated" for name, is_given in given.items() if is_given]
    else:
        reason = lacking()
        mistakes += [reason] if reason else []
    mistakes += [f"{workers} workers exchange nothing; two are the fewest" for workers in wishes.workers if workers < 2]  # noqa: PLR2004
    mistakes += [f"{size} bytes are no whole number of float32 values" for size in wishes.sizes if size < 4 or size % 4]  # noqa: PLR2004
    if wishes.hosts is not None and wishes.hosts < 2:  # noqa: PLR2004
        mistakes.append(f"--hosts {wishes.hosts}: messages between fewer than two hosts cross no link")
    if wishes.servers < 1:
        mistakes.append(f"--servers {wishes.servers}: push_pull needs one at least")
    if len(set(wishes.sizes)) < 2:  # noqa: PLR2004
        mistakes.append("--sizes: latencies and bandwidth need two sizes at least")
    if not wishes.workers:
        mistakes.append("--workers: none given")
    if mistakes:
        raise UsageError(mistakes)


def _why_not(back_end: FrameworkBackEnd, wishes: Wishes) -> str | None:
    if wishes.launcher in ("local", "mpi") and back_end.launcher != wishes.launcher:
        return f"its workers are started by the launcher {back_end.launcher}"
    if wishes.operations and not set(wishes.operations) & set(back_end.support.operations):
        return f"it has no operation {', '.join(wishes.operations)} (it has {', '.join(back_end.support.operations)})"
    if back_end.support.device == "cuda" and not wishes.device_count:
        return "it needs CUDA devices, and this machine has none"
    return None


def _setting(back_end: FrameworkBackEnd, workers: int, wishes: Wishes) -> NetSetting:
    support = back_end.support
    servers = wishes.servers if strategy_named(support.strategy).servers else 0
    emulated = wishes.launcher == "emulated"
    cluster = settled_cluster(
        workers=workers,
        own_servers=servers,
        workers_per_host=-(-workers // (wishes.hosts or workers)),
        bandwidth_bits_per_s=wishes.bandwidth_bits_per_s,
        delay_s=wishes.delay_s,
    )
    return NetSetting(
        back_end=back_end.name,
        framework=back_end.manifest.name,
        strategy=support.strategy,
        options=back_end.options,
        device=support.device,
        operations=tuple(name for name in support.operations if not wishes.operations or name in wishes.operations),
        sizes=tuple(sorted(set(wishes.sizes))),
        workers=workers,
        servers=servers,
        server_placement="own" if servers else None,
        launcher="emulated" if emulated else back_end.launcher,
        cluster=cluster if emulated else None,
        rounds=wishes.rounds,
        runs=wishes.runs,
        seconds=wishes.seconds,
    )
