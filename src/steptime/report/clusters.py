"""The hosts of trials, emulated ones and those of a site: what their links gave, and what was asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steptime.measurements.emulated_cluster import ClusterForm, HostForm, LinkForm, Spread
from steptime.measurements.summary_form import Summary
from steptime.report.number_format import UNKNOWN, Shown, count, listed, number
from steptime.report.trial_names import Names
from steptime.units import format_bit_rate, format_bytes, format_seconds

EXPLANATION = (
    "Emulated hosts are network namespaces of this one machine: each has its own name, its own cores and a link that "
    "the kernel slows down to the bandwidth and delay that the study asks for. They share memory, caches and clock, "
    "which hosts of a cluster do not. Alpha (the time of one byte) and bandwidth of the links were measured with plain "
    "sockets before each launch and are next to what was asked for; bytes are those of a host's interface during a "
    "launch. The second number is the least and the most of any launch."
)
ABOUT_FOUND = (
    "Hosts of a real cluster, as they are: alpha (the time of one byte) and bandwidth of the links from the first host "
    "were measured with plain sockets once before the launches; bytes are those of a host's interface during a launch, "
    "whoever sent them. Foreign load is that of the host that had most. The second number is the least and the most of "
    "any launch."
)


@dataclass(frozen=True)
class HostRow:
    """One host."""

    name: str
    who: str
    link: str
    quota: str
    sent: Shown
    received: Shown

    @property
    def line(self) -> str:
        """All of it in one sentence."""
        return (
            f"{self.name} ({self.who}): link {self.link}, processor {self.quota}, sent {self.sent.line}, received "
            f"{self.received.line}"
        )


@dataclass(frozen=True)
class LinkRow:
    """One link."""

    name: str
    alpha: Shown
    rate: Shown
    asked: str

    @property
    def line(self) -> str:
        """All of it in one sentence."""
        return f"{self.name}: alpha {self.alpha.line}, {self.rate.line}; asked for {self.asked}"


@dataclass(frozen=True)
class ClusterRows:
    """The hosts of one trial."""

    trial: str
    launches: str
    foreign: str
    flagged: bool
    """Whether foreign load was above 0.1 core in any launch."""
    hosts: list[HostRow]
    links: list[LinkRow]

    @property
    def heading(self) -> str:
        """Whose hosts they are, and whether they were alone."""
        return f"{self.trial}: {count(len(self.hosts), 'host')}, {self.launches}; {self.foreign}"

    @property
    def lines(self) -> list[str]:
        """Its hosts and links, a sentence each."""
        return [*(host.line for host in self.hosts), *(link.line for link in self.links)]


def clusters(summary: Summary, names: Names) -> list[ClusterRows]:
    """Return the hosts of every trial that had some beside this one."""
    return [_rows(names.full(trial), trial.cluster) for trial in summary.trials if trial.cluster]


def about(summary: Summary) -> tuple[str, str]:
    """Return the heading above the hosts of a study, and what they are."""
    kinds = {trial.cluster.kind for trial in summary.trials if trial.cluster}
    if "found" not in kinds and not summary.sites:
        return "Emulated hosts", EXPLANATION
    return "Hosts", ABOUT_FOUND if kinds == {"found"} else f"{ABOUT_FOUND} {EXPLANATION}"


def sites(summary: Summary) -> list[str]:
    """Return a sentence for each set of hosts that launches ran on, and what several of them mean for comparisons."""
    found = [
        f"{', '.join(site.hosts)}{f' ({listed(site.sources)})' if site.sources else ''}: "
        f"{count(site.launches, 'launch')} in {_blocks(site.blocks)}"
        for site in summary.sites
    ]
    if len(found) > 1:
        found.append(
            "Each block of launches ran on one set of hosts; trials are compared by launches of the same blocks only."
        )
    return found


def _blocks(numbers: Sequence[int]) -> str:
    """``block 3``, or ``blocks 3 to 7 and 9``."""
    stretches: list[list[int]] = []
    for number_ in numbers:
        if stretches and number_ == stretches[-1][-1] + 1:
            stretches[-1].append(number_)
        else:
            stretches.append([number_])
    words = [str(each[0]) if len(each) == 1 else f"{each[0]} to {each[-1]}" for each in stretches]
    return f"{'block' if len(numbers) == 1 else 'blocks'} {listed(words)}"


def _rows(name: str, found: ClusterForm) -> ClusterRows:
    return ClusterRows(
        trial=name,
        launches=count(found.launches, "launch"),
        foreign=_foreign(found),
        flagged=bool(found.foreign_load),
        hosts=[_host(host) for host in found.hosts],
        links=[_link(link, found.kind) for link in found.links],
    )


def _foreign(found: ClusterForm) -> str:
    if found.foreign_cores is None:
        return "foreign CPU load is not known"
    load = f"foreign CPU load {_spread(found.foreign_cores, number).line} cores"
    return f"{load}, above 0.1: times are too long" if found.foreign_load else load


def _host(host: HostForm) -> HostRow:
    held = f", held back {_spread(host.throttled_s, format_seconds).line}" if host.throttled_s else ""
    return HostRow(
        name=host.name,
        who=", ".join(host.roles) or "nobody",
        link=_rate(host.nominal_bandwidth_bits_per_s),
        quota=("not limited" if host.cpu_quota_cores is None else f"{number(host.cpu_quota_cores)} cores") + held,
        sent=_spread(host.sent_bytes, format_bytes),
        received=_spread(host.received_bytes, format_bytes),
    )


def _link(link: LinkForm, kind: str) -> LinkRow:
    delay = f"{format_seconds(link.nominal_delay_s)} delay" if link.nominal_delay_s else "no delay"
    return LinkRow(
        name=f"{link.source} to {link.target}",
        alpha=_spread(link.alpha_s, format_seconds),
        rate=_spread(link.bandwidth_bits_per_s, format_bit_rate),
        asked="nothing" if kind == "found" else f"{delay}, {_rate(link.nominal_bandwidth_bits_per_s)}",
    )


def _rate(bits_per_s: float | None) -> str:
    return "not limited" if bits_per_s is None else format_bit_rate(bits_per_s)


def _spread(found: Spread | None, form: Callable[[float], str]) -> Shown:
    if found is None:
        return Shown(UNKNOWN, "")
    ends: Sequence[str] = [form(found.least), form(found.most)]
    return Shown(form(found.value), " to ".join(ends) if ends[0] != ends[1] else "")
