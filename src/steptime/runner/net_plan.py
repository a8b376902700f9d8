"""The plan of the network benchmark: its back ends, and the settings that a user's query expands into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from steptime.catalog.accelerators import find_accelerators
from steptime.catalog.choices import strategy_named
from steptime.catalog.cluster import Cluster, cluster_for
from steptime.catalog.found_site import Site
from steptime.catalog.manifest import BackEndSupport, Manifest
from steptime.environments.kinds import find_ready
from steptime.errors import UsageError, choices_message
from steptime.expansion.site import launcher_on
from steptime.launchers.emulation.verification import missing_requirement
from steptime.results.net_records import NetSetting
from steptime.runner.preparation import environment_spec
from steptime.study.host_lists import expanded_hosts
from steptime.study.hosts import HostsChoice
from steptime.study.quantities import MOST_PROCESSES

OPERATIONS = ("allreduce", "allreduce_queued", "push_pull", "incast")
LAUNCHERS = ("auto", "local", "mpi", "emulated", "ssh", "slurm", "ray", "allocation")
LAUNCHERS_OF_THIS_HOST = ("local", "emulated")
_MOST_BYTES = 1024**3
"""Of a message; each worker holds a few of them."""


@dataclass(frozen=True)
class FrameworkBackEnd:
    """A back end of a framework."""

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
class NetQuery:
    """The workers, sizes and links that the user asked for."""

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
    site: Site | None = None
    """The hosts between which messages go; None if this host alone is used, or makes hosts."""


@dataclass
class NetPlan:
    """The settings to measure, and the reasons for those left out."""

    settings: list[NetSetting] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def back_ends_of(manifests: Mapping[str, Manifest]) -> dict[str, FrameworkBackEnd]:
    """Return the back ends of all frameworks, by name."""
    return {
        name: FrameworkBackEnd(name, manifest, support)
        for manifest in manifests.values()
        for name, support in sorted(manifest.back_ends.items())
    }


def back_ends_named(
    names: Sequence[str], known: Mapping[str, FrameworkBackEnd]
) -> tuple[list[FrameworkBackEnd], list[str]]:
    """Return the back ends ``names``, each once, and a mistake for every one that is unknown."""
    mistakes = [choices_message("back end", name, known) for name in names if name not in known]
    return [known[name] for name in dict.fromkeys(names) if name in known], mistakes


def ready_back_ends(known: Mapping[str, FrameworkBackEnd]) -> tuple[list[FrameworkBackEnd], list[str]]:
    """Return the back ends whose environments exist, and one line for each other."""
    accelerators = find_accelerators()
    specs = {}
    for each in known.values():
        device = each.support.device
        usable = device == "cpu" or each.manifest.cuda_build(accelerators)
        specs[each.name] = environment_spec(each.manifest, None, device, accelerators) if usable else None
    there = {name for name, spec in specs.items() if spec and find_ready(spec)}
    found = [each for each in known.values() if each.name in there]
    missing = [
        f"{name}: no environment yet; make it with 'steptime env create {spec.name}'"
        if spec
        else f"{name}: {known[name].manifest.no_cuda_reason(accelerators)}"
        for name, spec in specs.items()
        if name not in there
    ]
    return found, missing


def parse_operation(name: str) -> str:
    """Return ``name`` if it is an operation; raises UsageError with the choices."""
    if name not in OPERATIONS:
        raise UsageError(choices_message("operation", name, OPERATIONS))
    return name


def parse_hosts(
    text: str, launcher: str = "auto", interface: str | None = None
) -> tuple[int | None, HostsChoice | None]:
    """Return a number of emulated hosts, or the real hosts that are named; both None if only an interface is.

    Args:
        text: a number, or names that commas separate, n[0-3] for several.
        launcher: that is asked for.
        interface: by which real hosts talk to each other, where the user names one.

    Raises UsageError where a name is none, or the launcher uses no real hosts.
    """
    counted = int(text) if text.isdecimal() else None
    try:
        names = [] if counted is not None else [name for name in expanded_hosts(text) if name]
    except ValueError as error:
        message = f"--hosts: {error}"
        raise UsageError(message) from error
    if launcher in LAUNCHERS_OF_THIS_HOST and (names or interface):
        given = f"--hosts {text}" if names else f"--interface {interface}"
        message = f"{given} means nothing to --launcher {launcher}; use auto, ssh, slurm, ray or mpi"
        raise UsageError(message)
    if not names and interface is None:
        return counted, None
    try:
        return counted, HostsChoice(names=names, interface=interface)
    except ValidationError as error:
        wrong = ", ".join(repr(each["input"]) for each in error.errors())
        message = f"{wrong} is not a name of a host or an interface"
        raise UsageError(message) from error


def net_plan_of(wanted: Sequence[FrameworkBackEnd], query: NetQuery) -> NetPlan:
    """Return the settings of all back ends and worker counts, and one line for each that cannot be.

    Raises UsageError where nothing is left, or the query contradicts itself.
    """
    _check_query(query)
    plan = NetPlan()
    for back_end in wanted:
        reason = _reason_against(back_end, query)
        if reason:
            plan.skipped.append(f"{back_end.name}: {reason}")
            continue
        for workers in query.workers:
            reason = _too_few_hosts(back_end, workers, query)
            if reason:
                plan.skipped.append(f"{back_end.name}, {workers} workers: {reason}")
            else:
                plan.settings.append(_setting(back_end, workers, query))
    if not plan.settings:
        raise UsageError(["nothing can be measured", *plan.skipped])
    return plan


def _launcher_mistakes(query: NetQuery) -> list[str]:
    """Return what a launcher cannot do that is asked for."""
    if query.launcher not in LAUNCHERS:
        return [choices_message("launcher", query.launcher, LAUNCHERS)]
    if query.launcher == "emulated":
        reason = missing_requirement()
        return [reason] if reason else []
    given = {
        "--hosts": query.hosts is not None and query.site is None,
        "--bandwidth": query.bandwidth_bits_per_s is not None,
        "--delay": query.delay_s > 0,
    }
    return [f"{name} needs --launcher emulated" for name, is_given in given.items() if is_given]


def _check_query(query: NetQuery) -> None:
    bandwidth, hosts, servers = query.bandwidth_bits_per_s, query.hosts, query.servers
    refused = {
        "--bandwidth: a bandwidth must be positive, not 0 bit/s": bandwidth is not None and bandwidth <= 0,
        f"--servers {servers}: more than {MOST_PROCESSES}": servers > MOST_PROCESSES,
        f"--hosts {hosts}: messages between fewer than two hosts cross no link": hosts is not None and hosts < 2,  # noqa: PLR2004
        f"--servers {servers}: push_pull needs one at least": servers < 1,
        "--sizes: latencies and bandwidth need two sizes at least": len(set(query.sizes)) < 2,  # noqa: PLR2004
        "--workers: none given": not query.workers,
    }
    mistakes = [
        *_launcher_mistakes(query),
        *(f"{workers} workers exchange nothing; two are the fewest" for workers in query.workers if workers < 2),  # noqa: PLR2004
        *(f"{size} bytes: not a whole number of float32 values" for size in query.sizes if size < 4 or size % 4),  # noqa: PLR2004
        *(f"{workers} workers are more than {MOST_PROCESSES}" for workers in query.workers if workers > MOST_PROCESSES),
        *(f"{size} bytes are more than {_MOST_BYTES}" for size in query.sizes if size > _MOST_BYTES),
        *(mistake for mistake, is_made in refused.items() if is_made),
    ]
    if mistakes:
        raise UsageError(mistakes)


def _reason_against(back_end: FrameworkBackEnd, query: NetQuery) -> str | None:
    if query.launcher == "mpi" and query.site is not None:
        if _own_servers(back_end, query):
            return "it needs servers, which the launcher mpi does not start"
    elif query.launcher in ("local", "mpi") and back_end.launcher != query.launcher:
        return f"its workers are started by the launcher {back_end.launcher}"
    if query.operations and not set(query.operations) & set(back_end.support.operations):
        return f"it has no operation {', '.join(query.operations)} (it has {', '.join(back_end.support.operations)})"
    if back_end.support.device == "cuda" and not query.device_count:
        return "it needs CUDA devices, and this machine has none"
    return None


def _too_few_hosts(back_end: FrameworkBackEnd, workers: int, query: NetQuery) -> str | None:
    servers = _own_servers(back_end, query)
    if query.site is not None:
        available = len(query.site.hosts)
        if available - servers < 1 or available < 2:  # noqa: PLR2004
            needed = f"two hosts at least, and one for each of {servers} servers" if servers else "two hosts at least"
            return f"they need {needed}; there are {available}"
        workers = _workers_per_host(back_end, workers, query)
    elif query.launcher == "emulated" and workers < (query.hosts or workers):
        return f"fewer than the {query.hosts} hosts"
    if back_end.support.device == "cuda" and workers > query.device_count:
        return f"this machine has {query.device_count} CUDA devices"
    return None


def _own_servers(back_end: FrameworkBackEnd, query: NetQuery) -> int:
    return query.servers if strategy_named(back_end.support.strategy).servers else 0


def _workers_per_host(back_end: FrameworkBackEnd, workers: int, query: NetQuery) -> int:
    """Return how many workers share a host: as few as the hosts allow that no server has for itself."""
    if query.site is None:
        return -(-workers // (query.hosts or workers))
    return -(-workers // (len(query.site.hosts) - _own_servers(back_end, query)))


def _cluster(back_end: FrameworkBackEnd, workers: int, query: NetQuery) -> Cluster | None:
    """Return the hosts of a setting, those of a site or emulated ones; None if this host alone is used."""
    if query.site is None and query.launcher != "emulated":
        return None
    return cluster_for(
        workers=workers,
        own_servers=_own_servers(back_end, query),
        workers_per_host=_workers_per_host(back_end, workers, query),
        bandwidth_bits_per_s=query.bandwidth_bits_per_s,
        delay_s=query.delay_s,
        kind="emulated" if query.site is None else "found",
    )


def _launcher(back_end: FrameworkBackEnd, query: NetQuery) -> str:
    """Return what starts the workers of a setting; on a site that is what reaches its hosts, unless it is named."""
    if query.site is not None:
        return launcher_on(query.site, query.launcher)
    return "emulated" if query.launcher == "emulated" else back_end.launcher


def _setting(back_end: FrameworkBackEnd, workers: int, query: NetQuery) -> NetSetting:
    support, servers = back_end.support, _own_servers(back_end, query)
    return NetSetting(
        back_end=back_end.name,
        framework=back_end.manifest.name,
        strategy=support.strategy,
        options=back_end.options,
        device=support.device,
        operations=tuple(name for name in support.operations if not query.operations or name in query.operations),
        sizes=tuple(sorted(set(query.sizes))),
        workers=workers,
        servers=servers,
        server_placement="own" if servers else None,
        launcher=_launcher(back_end, query),
        cluster=_cluster(back_end, workers, query),
        rounds=query.rounds,
        runs=query.runs,
        seconds=query.seconds,
    )
