"""What predictions take for granted: the layout of workers on hosts and the link between them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from steptime.catalog.choices import strategy_named
from steptime.fitting.profile import Profile
from steptime.predict.predict import Prediction, predict_one
from steptime.predict.query import Query
from steptime.predict.targets import targets
from steptime.units import format_bit_rate, format_count, format_seconds

_BITS = 8
_MOST_LAYOUTS = 3
"""Numbers of workers whose layout is written out."""
_HOW = {"net": "as measured", "cluster": "as measured", "believed": "by the data sheet", "prior": "assumed"}
_LAYOUT_KEYS = {"hosts", "workers_per_host"}
STATED = {*_LAYOUT_KEYS, "gpus_per_host", "interconnect.bandwidth", "nic_bandwidth", "interconnect.delay"}
"""Keys of a query of several hosts whose values ``assumed`` states."""


def assumed(group: Sequence[Prediction]) -> str:
    """Return ``64 workers on 32 hosts, 2 each (not stated), 25 Gbit/s between hosts, latency 0.2 ms (as measured)``."""
    known = [each for each in group if each.deployment is not None]
    layouts = list(dict.fromkeys(_layout(each) for each in known))
    if len(layouts) > _MOST_LAYOUTS:
        layouts = [*layouts[: _MOST_LAYOUTS - 1], "…", layouts[-1]]
    links = list(dict.fromkeys(_link(each) for each in known if each.deployment and each.deployment.crosses))
    servers = dict.fromkeys(_servers(each) for each in known)
    return "; ".join([*layouts, *filter(None, [*servers, *links])])


def other_layouts(profile: Profile, group: Sequence[Prediction]) -> Iterator[Prediction]:
    """Yield the farthest step of each query with one worker on each host, where the layout matters and was not stated.

    Nothing is yielded of predictions within one host, nor of those that are refused.
    """
    farthest = {tuple(each.query.texts.items()): each for each in group if each.step_s is not None}
    yield from filter(None, (other_layout(profile, each) for each in farthest.values()))


def other_layout(profile: Profile, one: Prediction) -> Prediction | None:
    """Return a prediction with one worker on each host; None if that is refused, or if ``one`` states its layout."""
    if not _is_open(one):
        return None
    query = replace(one.query, workers_per_host=1)
    alike = (target for target in targets(profile, query) if target.key == one.key)
    others = (predict_one(profile, target, query, one.workers) for target in alike)
    return next((other for other in others if other.step_s is not None), None)


def _is_open(one: Prediction) -> bool:
    """Whether the layout matters and was not stated."""
    deployment = one.deployment
    stated = one.query.workers_per_host or one.query.hosts
    return deployment is not None and deployment.crosses and deployment.workers_per_host > 1 and not stated


def worker_counts(profile: Profile, query: Query) -> list[int]:
    """Return the workers of a query: those on its hosts, one each or one for each GPU; empty if it states none."""
    if query.strategy is not None and strategy_named(query.strategy).single_baseline:
        return [1]
    on_gpus = (query.device or "cuda") != "cpu" and all(each.key.device == "cuda" for each in profile.groups)
    usual = max(profile.machine.gpus, 1) if on_gpus else 1
    return [query.hosts * (query.workers_per_host or usual)] if query.hosts else []


def without_effect(
    overrides: Sequence[str],
    predictions: Sequence[Prediction],
    predicted: Callable[[Sequence[str]], Sequence[Prediction]],
) -> Iterator[str]:
    """Yield each change without which the predictions would be the same; a layout takes the place of an assumed one.

    Args:
        overrides: the changes as they were written.
        predictions: what is predicted with all of them.
        predicted: returns what is predicted with some of them.
    """
    steps = {each.step_s for each in predictions}
    if steps == {None}:
        return
    over_hosts = any(each.deployment and each.deployment.hosts > 1 for each in predictions)
    for index, text in enumerate(overrides):
        if over_hosts and text.partition("=")[0] in _LAYOUT_KEYS:
            continue
        rest = [*overrides[:index], *overrides[index + 1 :]]
        if {each.step_s for each in predicted(rest)} == steps:
            yield text


def _layout(one: Prediction) -> str:
    deployment = one.deployment
    if deployment is None:
        return ""
    workers = format_count(one.workers, "worker")
    if deployment.hosts == 1:
        return f"{workers} on one host"
    stated = "" if one.query.workers_per_host or one.query.hosts else " (not stated)"
    most = "up to " if one.workers % deployment.workers_per_host else ""
    return f"{workers} on {format_count(deployment.hosts, 'host')}, {most}{deployment.workers_per_host} each{stated}"


def _servers(one: Prediction) -> str:
    """Return ``2 servers on 2 hosts of their own``; empty where there are none."""
    deployment = one.deployment
    if deployment is None or not deployment.servers:
        return ""
    own, several = deployment.server_hosts, deployment.servers > 1
    beside = " beside workers" if deployment.placement == "colocated" else ""
    where = f" on {format_count(own, 'host')} of {'their' if several else 'its'} own" if own else beside
    return f"{format_count(deployment.servers, 'server')}{where}"


def _link(one: Prediction) -> str:
    deployment, link = one.deployment, one.link
    if deployment is None or link is None:
        return ""
    how = "fitted to the measured steps" if link.fitted else _HOW[link.source]
    stated = [f"{format_bit_rate(_BITS * deployment.bandwidth)} between hosts" if deployment.bandwidth else ""]
    stated += [f"delay {format_seconds(deployment.delay_s)}" if one.query.delay_s is not None else ""]
    rate = f"{format_bit_rate(_BITS * link.rate)} between hosts"
    left = [*([] if stated[0] else [rate]), *([] if stated[1] else [f"latency {format_seconds(link.latency_s)}"])]
    return ", ".join([*filter(None, stated), *([f"{' and '.join(left)} ({how})"] if left else [])])
