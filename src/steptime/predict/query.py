"""The query of a prediction: workers and ``key.path=value`` changes, read with all mistakes at once."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, get_args

from steptime.catalog.choices import NATIVE, SINGLE, STRATEGIES, SYNTHETIC, strategy_named
from steptime.catalog.workloads.table import LIBRARY
from steptime.errors import UsageError, choices_message
from steptime.fitting.observation import USUAL_SETTINGS
from steptime.fitting.profile import Profile
from steptime.model.collectives import LIBRARIES
from steptime.model.compute import DEVICES
from steptime.model.link_sheets import LINKS
from steptime.model.policies import COMPRESSIONS, SHARDS, WIDTHS
from steptime.study.trial import ServerPlacement
from steptime.units import parse_bit_rate, parse_delay, parse_share

_BITS = 8
_DOTS = ("…", "...")
_MOST_WORKERS = 100_000
"""No exchange of so many was ever measured; whatever has more of anything is outside every model."""
_MOST_COUNTS = 1000
"""Numbers of workers in one command."""
_MOST_QUERIES = 1000
_MOST_BATCH = 10**6
"""Of a worker; all of them have at most a thousand times as many."""
_MOST_PER_HOST = 10_000
_MOST_SAMPLES = 10**12
_LEAST_MIB, _MOST_MIB = 1e-6, 1e6
_LEAST_SHARE = 1e-6
_OF_MODEL = frozenset({"framework", "strategy", "tuning", "workload"})
"""Keys whose values the name of a model has."""
_LEAST_RATE, _MOST_RATE = 1e3 / _BITS, 1e15 / _BITS
_MOST_DELAY_S = 100.0


@dataclass(frozen=True)
class Query:
    """Changes to measured configurations; None if a field stays as it was measured."""

    framework: str | None = None
    strategy: str | None = None
    workload: str | None = None
    loader: str | None = None
    device: str | None = None
    precision: str | None = None
    tuning: str | None = None
    """Which tier's models are asked."""
    batch_per_worker: int | None = None
    global_batch: int | None = None
    bucket_mb: float | None = None
    servers: int | None = None
    server_placement: ServerPlacement | None = None
    hosts: int | None = None
    workers_per_host: int | None = None
    cores_per_host: int | None = None
    nics_per_host: int | None = None
    bandwidth: float | None = None
    """Bytes per second, of each card of a host."""
    inner_bandwidth: float | None = None
    """Bytes per second of a worker to the others of its host, in one direction."""
    nic: str | None = None
    """A card of the catalogue of links."""
    inner_link: str | None = None
    """A link of the catalogue that joins the workers of a host."""
    collectives: str | None = None
    gradient_precision: str | None = None
    compression: str | None = None
    topk_share: float | None = None
    shard: str | None = None
    accumulation: int | None = None
    delay_s: float | None = None
    samples: int | None = None
    """Of an epoch."""
    settings: tuple[tuple[str, str], ...] = ()
    """By name, the values of ``USUAL_SETTINGS`` whose models are asked."""
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The values as they were written, by key, for those keys that had several."""

    @property
    def changed_texts(self) -> dict[str, str]:
        """Of ``texts``, those that do not choose the model, whose name has these."""
        return {key: text for key, text in self.texts.items() if key not in _OF_MODEL}

    def changes(self, without: Collection[str] = ()) -> str:
        """Return ``bandwidth=25Gbit/s`` of what was changed, ``without`` some keys; empty where nothing was."""
        changed = ((key, text) for key, text in self.changed_texts.items() if key not in without)
        return ", ".join(f"{key.removeprefix('interconnect.')}={text}" for key, text in changed)


def _count(most: int) -> Callable[[str], int]:
    """Return the reader of a whole number from 1 on; more than ``most`` is outside every model."""

    def read(text: str) -> int:
        if not text.isdecimal() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
            message = f"{text[:40]!r} is not a whole number from 1 to {most}"
            raise ValueError(message)
        return int(text)

    return read


def _size(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _LEAST_MIB <= value <= _MOST_MIB:
        message = f"{text!r} is not a size in MiB from {_LEAST_MIB:g} to {_MOST_MIB:g}"
        raise ValueError(message)
    return value


def _delay(text: str) -> float:
    seconds = parse_delay(text)
    if not seconds <= _MOST_DELAY_S:
        message = f"{text!r} is longer than any link delays; the most is {_MOST_DELAY_S:g}s"
        raise ValueError(message)
    return seconds


def _share(text: str) -> float:
    share = parse_share(text)
    if not _LEAST_SHARE <= share <= 1.0:
        message = f"{text!r} is not a share from {_LEAST_SHARE:g} to 1; write for example 1% or 0.01"
        raise ValueError(message)
    return share


def _rate(text: str) -> float:
    rate = parse_bit_rate(text) / _BITS
    if rate <= 0.0:
        message = f"bandwidth must be positive, not {text!r}; write for example 25Gbit/s"
        raise ValueError(message)
    if not _LEAST_RATE <= rate <= _MOST_RATE:
        message = f"bandwidth must be from 1kbit/s to 1000000Gbit/s, not {text!r}"
        raise ValueError(message)
    return rate


@dataclass(frozen=True)
class _QueryKey:
    """What the value of a key may be."""

    read: Callable[[str], Any] = str
    """Raises ValueError for a value that it cannot be."""
    field: str | None = None
    """Of the query; None if the key has its name."""
    choices: Callable[[Profile], Iterable[str]] | None = None
    """All names that it may be, given the profile; None if ``read`` decides."""


def _measured(name: str) -> Callable[[Profile], list[str]]:
    """Return the choices of a key of which the profile's groups have the only values."""
    return lambda profile: sorted({getattr(group.key, name) for group in profile.groups})


def _measured_setting(name: str) -> Callable[[Profile], list[str]]:
    return lambda profile: sorted({group.key.setting(name) for group in profile.groups})


def _loaders(profile: Profile) -> list[str]:
    return sorted({SYNTHETIC.name, NATIVE.name} | {group.key.loader for group in profile.groups})


def _links(*, network: bool) -> Callable[[Profile], list[str]]:
    return lambda _: [name for name, sheet in LINKS.items() if (sheet.medium == "network") == network]


_KEYS: Mapping[str, _QueryKey] = {
    "framework": _QueryKey(choices=_measured("framework")),
    "strategy": _QueryKey(choices=lambda _: STRATEGIES),
    "workload": _QueryKey(choices=lambda _: LIBRARY),
    "loader": _QueryKey(choices=_loaders),
    "device": _QueryKey(choices=lambda _: ["cpu", "cuda", *DEVICES]),
    "precision": _QueryKey(choices=lambda _: ["fp32", "bf16"]),
    "tuning": _QueryKey(choices=_measured("tuning")),
    "batch_per_worker": _QueryKey(_count(_MOST_BATCH)),
    "global_batch": _QueryKey(_count(_MOST_BATCH * 1000)),
    "bucket_mb": _QueryKey(_size),
    "servers": _QueryKey(_count(_MOST_WORKERS)),
    "server_placement": _QueryKey(choices=lambda _: get_args(ServerPlacement)),
    "hosts": _QueryKey(_count(_MOST_WORKERS)),
    "workers_per_host": _QueryKey(_count(_MOST_PER_HOST)),
    "cores_per_host": _QueryKey(_count(_MOST_PER_HOST)),
    "gpus_per_host": _QueryKey(_count(_MOST_PER_HOST), "workers_per_host"),
    "nics_per_host": _QueryKey(_count(_MOST_PER_HOST)),
    "nic_bandwidth": _QueryKey(_rate, "bandwidth"),
    "nic": _QueryKey(choices=_links(network=True)),
    "inner_bandwidth": _QueryKey(_rate),
    "inner_link": _QueryKey(choices=_links(network=False)),
    "collectives": _QueryKey(choices=lambda _: LIBRARIES),
    "gradient_precision": _QueryKey(choices=lambda _: WIDTHS),
    "compression": _QueryKey(choices=lambda _: COMPRESSIONS),
    "topk_share": _QueryKey(_share),
    "shard": _QueryKey(choices=lambda _: SHARDS),
    "accumulation": _QueryKey(_count(_MOST_BATCH)),
    "interconnect.bandwidth": _QueryKey(_rate, "bandwidth"),
    "interconnect.delay": _QueryKey(_delay, "delay_s"),
    "samples": _QueryKey(_count(_MOST_SAMPLES)),
    **{name: _QueryKey(choices=_measured_setting(name)) for name in USUAL_SETTINGS},
}
KEYS = tuple(_KEYS)
"""What may be changed, in the order of the documentation."""


def read_workers(text: str) -> list[int]:
    """Return the worker counts of ``4,8,16`` or ``4,8,...,1024``, ascending, none twice.

    The dots go on as the two numbers before them do: by their ratio where it is whole, else by their difference.

    Raises UsageError with every part that is wrong.
    """
    found: list[int] = []
    wrong: list[str] = []
    dots = False
    for part in (each.strip() for each in text.split(",")):
        if part in _DOTS:
            dots = True
            continue
        try:
            count = int(part)
        except ValueError:
            which = repr(part) if part else f"nothing beside a comma of {text[:60]!r}"
            wrong.append(f"--workers: {which} is not a whole number; write for example --workers 4,8,16")
            continue
        if not 1 <= count <= _MOST_WORKERS:
            wrong.append(f"--workers: {count} is not a number of workers; give numbers from 1 to {_MOST_WORKERS}")
            continue
        if dots:
            found += _between(found, count, wrong)
            dots = False
        found.append(count)
    if dots:
        wrong.append("--workers: dots need a number after them, as in 4,8,...,1024")
    if len(found) > _MOST_COUNTS:
        wrong.append(f"--workers: {text[:60]!r} means more than {_MOST_COUNTS} numbers; give fewer, or larger steps")
    if wrong:
        raise UsageError(wrong)
    return sorted(set(found))


def _workers(text: str) -> str:
    """Return numbers of workers as they were written, or an example where ``--workers`` would refuse them too."""
    try:
        read_workers(text)
    except UsageError:
        return "4,8,16"
    return text.strip()


def _between(found: Sequence[int], last: int, wrong: list[str]) -> list[int]:
    if len(found) < 2 or found[-1] <= found[-2]:  # noqa: PLR2004 - two numbers make a step
        wrong.append("--workers: dots need two growing numbers before them, as in 4,8,...,1024")
        return []
    one, two = found[-2:]
    following: Callable[[int], int] = (lambda n: n * (two // one)) if two % one == 0 else (lambda n: n + two - one)
    filled: list[int] = []
    count = following(two)
    while count < last and len(filled) <= _MOST_COUNTS:
        filled.append(count)
        count = following(count)
    return filled


def read_queries(overrides: Sequence[str], profile: Profile) -> list[Query]:
    """Return one query for each combination of the values given.

    Raises UsageError with every override that is unknown, unreadable or in contradiction to another.
    """
    wrong: list[str] = []
    values: dict[str, list[tuple[str, Any]]] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not text.strip():
            wrong.append(f"override {override!r}: write KEY=VALUE, for example interconnect.bandwidth=25Gbit/s")
        elif key == "workers":
            wrong.append(f"override {override!r}: numbers of workers are an option: --workers {_workers(text)}")
        elif key not in _KEYS:
            wrong.append(f"override {override!r}: {choices_message('key', key, KEYS)}")
        elif key in values:
            wrong.append(f"override {override!r}: {key} is given twice; several values are written {key}=A,B")
        else:
            values[key] = list(_values(override, key, text, wrong))
    wrong += _unknown(values, profile)
    wrong += _contradictions(values)
    several = {key: len(each) for key, each in values.items() if len(each) > 1}
    if prod(several.values()) > _MOST_QUERIES:
        counts = " x ".join(f"{count} of {key}" for key, count in several.items())
        wrong.append(f"{counts} are more than {_MOST_QUERIES} combinations; give fewer values")
    if wrong:
        raise UsageError(wrong)
    return [_query(values, chosen) for chosen in product(*values.values())]


def _values(override: str, key: str, text: str, wrong: list[str]) -> Iterator[tuple[str, Any]]:
    for part in (each.strip() for each in text.strip().strip("[]").split(",")):
        try:
            yield part, _KEYS[key].read(part)
        except ValueError as error:
            wrong.append(f"override {override!r}: {error}")


def _query(values: Mapping[str, list[tuple[str, Any]]], chosen: Sequence[tuple[str, Any]]) -> Query:
    fields = {_KEYS[key].field or key: value for key, (_, value) in zip(values, chosen, strict=True)}
    several = {key: text for key, (text, _) in zip(values, chosen, strict=True) if len(values[key]) > 1}
    settings = tuple((name, fields.pop(name)) for name in USUAL_SETTINGS if name in fields)
    return Query(**fields, settings=settings, texts=several)


def _unknown(values: Mapping[str, list[tuple[str, Any]]], profile: Profile) -> Iterator[str]:
    for key, each in _KEYS.items():
        if each.choices is None or key not in values:
            continue
        choices = list(each.choices(profile))
        for text, _ in values[key]:
            if text not in choices:
                where = " in this profile" if key in {"framework", "tuning", *USUAL_SETTINGS} else ""
                what = key.replace("_", " ")
                yield f"override '{key}={text}': {choices_message(what, text, choices)}{where}"


def _contradictions(values: Mapping[str, list[tuple[str, Any]]]) -> Iterator[str]:
    if "batch_per_worker" in values and "global_batch" in values:
        yield (
            "batch_per_worker and global_batch contradict each other; keep one: batch_per_worker for weak scaling, "
            "global_batch for strong scaling"
        )
    for one, other in (
        ("gpus_per_host", "workers_per_host"),
        ("nic_bandwidth", "interconnect.bandwidth"),
        ("nic_bandwidth", "nic"),
        ("interconnect.bandwidth", "nic"),
        ("inner_bandwidth", "inner_link"),
    ):
        if one in values and other in values:
            yield f"{one} and {other} say the same; keep one of both"
    if "topk_share" in values and "topk" not in {text for text, _ in values.get("compression", [])}:
        yield "topk_share requires compression=topk"
    strategies = {text for text, _ in values.get("strategy", [])}
    without = sorted(name for name in strategies if name in STRATEGIES and not STRATEGIES[name].servers)
    for key in ("servers", "server_placement"):
        if key in values and without:
            yield f"{key} contradicts strategy={without[0]}, which has no servers; remove one of the two"
    if strategies == {SINGLE.name}:
        for key in (
            "interconnect.bandwidth",
            "interconnect.delay",
            "hosts",
            "workers_per_host",
            "bucket_mb",
            "gpus_per_host",
            "nic_bandwidth",
            "nic",
            "gradient_precision",
            "compression",
            "shard",
            "collectives",
        ):
            if key in values:
                yield (
                    f"{key} contradicts strategy={SINGLE.name}, whose one worker exchanges nothing; "
                    "remove one of the two"
                )


def check_sizes(workers: Sequence[int], queries: Sequence[Query]) -> None:
    """Raise UsageError with every size of a query that no number of ``workers`` can have."""
    wrong: dict[str, None] = {}
    for query in queries:
        for count in workers:
            wrong |= dict.fromkeys(_misfits(count, query))
    if wrong:
        raise UsageError(list(wrong))


def _misfits(count: int, query: Query) -> Iterator[str]:
    if not 1 <= count <= _MOST_WORKERS:  # as a program may ask
        yield f"{count} is not a number of workers; give numbers from 1 to {_MOST_WORKERS}"
        return
    if query.global_batch and query.global_batch % count:
        yield f"global_batch={query.global_batch} cannot be shared equally by {count} workers (--workers)"
    if query.hosts and query.hosts > count:
        yield (
            f"hosts={query.hosts} contradicts --workers {count}: {query.hosts} hosts need at least {query.hosts} "
            "workers, set --workers"
        )
    if query.hosts and query.workers_per_host and query.hosts * query.workers_per_host < count:
        capacity = query.hosts * query.workers_per_host
        yield (
            f"hosts={query.hosts} and workers_per_host={query.workers_per_host} hold {capacity} workers, which "
            f"contradicts --workers {count}; remove one of the two"
        )
    if query.strategy and strategy_named(query.strategy).single_baseline and count > 1:
        yield (
            f"strategy={query.strategy} contradicts --workers {count}: it has one worker; "
            "ask for example strategy=allreduce"
        )
