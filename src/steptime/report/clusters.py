"""The hosts of trials, emulated ones and those of a site: what their links gave, and what was asked for."""

from collections.abc import Callable, Sequence

from steptime.analysis.emulated_cluster import ClusterForm, HostForm, LinkForm, Spread
from steptime.analysis.summary_form import Summary
from steptime.document.number_format import UNKNOWN, Shown, count, listed, number
from steptime.document.section import Column, Part, Section, SectionTable, Sentences, TableRow, cells
from steptime.report.trial_names import Names
from steptime.units import format_bit_rate, format_bytes, format_seconds, is_undecided

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


def host_section(summary: Summary, names: Names) -> Section | None:
    """Return the hosts of every trial that had some beside this one, and of every site; None if there are none."""
    trials = [(trial, trial.cluster) for trial in summary.trials if trial.cluster]
    if not trials and not summary.sites:
        return None
    kinds = {cluster.kind for _, cluster in trials}
    emulated = "found" not in kinds and not summary.sites
    about = EXPLANATION if emulated else ABOUT_FOUND if kinds == {"found"} else f"{ABOUT_FOUND} {EXPLANATION}"
    found: list[Part] = [Sentences(sites(summary), "dim", listed=True)] if summary.sites else []
    found += [_hosts(names.full(trial), cluster, opened=not i) for i, (trial, cluster) in enumerate(trials)]
    return Section("Emulated hosts" if emulated else "Hosts", found, about, id="hosts")


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


def _hosts(trial: str, found: ClusterForm, *, opened: bool) -> Section:
    columns = [Column("who", "text"), Column("link as set"), Column("processor", "text")]
    columns += [Column("sent"), Column("received")]
    tables = [SectionTable(columns, [_host(host) for host in found.hosts], "host", label=f"Hosts: {trial}")]
    if found.links:
        columns = [Column("alpha measured"), Column("bandwidth measured"), Column("asked for")]
        rows = [_link(link, found.kind) for link in found.links]
        tables.append(SectionTable(columns, rows, "link", label=f"Links: {trial}"))
    return Section(
        f"{trial}: {count(len(found.hosts), 'host')}, {count(found.launches, 'launch')}; {_foreign(found)}",
        tables,
        style="warning" if found.foreign_load else "",
        folded=True,
        opened=opened,
    )


def _foreign(found: ClusterForm) -> str:
    if found.foreign_cores is None:
        return "CPU used by other processes is not known"
    load = f"CPU used by other processes {_spread(found.foreign_cores, number).line} cores"
    return f"{load}, above 0.1: times are too long" if found.foreign_load else load


def _host(host: HostForm) -> TableRow:
    who = ", ".join(host.roles) or "no worker"
    link = _rate(host.nominal_bandwidth_bits_per_s)
    held = f", held back {_spread(host.throttled_s, format_seconds).line}" if host.throttled_s else ""
    quota = ("not limited" if host.cpu_quota_cores is None else f"{number(host.cpu_quota_cores)} cores") + held
    sent, received = _spread(host.sent_bytes, format_bytes), _spread(host.received_bytes, format_bytes)
    sentence = f"{host.name} ({who}): link {link}, processor {quota}, sent {sent.line}, received {received.line}"
    return TableRow(host.name, cells(who, link, quota, sent, received), sentence=sentence)


def _link(link: LinkForm, kind: str) -> TableRow:
    delay = f"{format_seconds(link.nominal_delay_s)} delay" if link.nominal_delay_s else "no delay"
    name = f"{link.source} to {link.target}"
    alpha, rate = _spread(link.alpha_s, format_seconds), _spread(link.bandwidth_bits_per_s, format_bit_rate)
    asked = "nothing" if kind == "found" else f"{delay}, {_rate(link.nominal_bandwidth_bits_per_s)}"
    sentence = f"{name}: alpha {alpha.line}, {rate.line}; asked for {asked}"
    return TableRow(name, cells(alpha, rate, asked), sentence=sentence)


def _rate(bits_per_s: float | None) -> str:
    return "not limited" if bits_per_s is None else format_bit_rate(bits_per_s)


def _spread(found: Spread | None, form: Callable[[float], str]) -> Shown:
    if found is None:
        return Shown(UNKNOWN, "")
    ends: Sequence[str] = [form(found.least), form(found.most)]
    if is_undecided(found.least, found.most):
        return Shown(" to ".join(ends), "")
    return Shown(form(found.value), " to ".join(ends) if ends[0] != ends[1] else "")
