"""Where the workers of a question run, and over what they exchange; or why that is not known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steptime.model.policies import has_policy
from steptime.predict.fit import crowd_of
from steptime.predict.link_facts import LATENCIES, SPREADS, Spread, matching, spread_of
from steptime.predict.observation import Setting
from steptime.predict.profile import Group, LinkFacts, Measured, Profile
from steptime.predict.query import Wish
from steptime.predict.targets import Target
from steptime.study.strategies import strategy_named

_FAR = 2.0
"""Times the most workers measured, up to which an exchange may be predicted from steps alone."""
_CROWDED = 2
"""Workers per processor, up to which nobody needs to have measured it."""
_BELIEVED_ALPHA = 30e-6
_ALPHA_SPREAD = 1.0
_BELIEVED_SHARE, _SHARE_SPREAD = 0.85, 0.25
"""Of a nominal rate that messages reach, and the spread of its logarithm."""
_EXACT: Spread = (0.0, 0.0)


class Refusal(Exception):  # noqa: N818 - it is an answer, not an error
    """The data cannot support a number; the message says which measurement would."""


@dataclass(frozen=True)
class Place:
    """Everything about a question but what is computed."""

    setting: Setting
    crowd: tuple[int, int]
    """Workers that share processors, and slots of those."""
    link: LinkFacts | None
    spread: Spread
    """Further standard deviations of the logarithms of the link's start and rate."""
    factors: bool
    """Whether the group's own factors on start and rate hold for this link."""
    nearest: list[Measured]
    """Configurations of the same strategy."""


def place(profile: Profile, target: Target, wish: Wish, workers: int) -> Place:
    """Return where ``workers`` workers run; raises Refusal where that needs what nobody measured."""
    own = _own(target)
    setting = _setting(profile, target, wish, workers, own)
    crowd = _crowd(profile, target, wish, setting, own)
    if workers == 1 and not setting.servers:
        return Place(setting, crowd, None, _EXACT, factors=False, nearest=own)
    if not has_policy(target.key.strategy):
        message = (
            f"nobody has a formula for what {target.key.strategy} exchanges, and a step of {workers} workers does "
            f"not follow from others; measure it: workers: {workers}"
        )
        raise Refusal(message)
    link, spread, factors = _link(profile, target, wish, setting, own)
    return Place(setting, crowd, link, spread, factors=factors, nearest=own)


def _own(target: Target) -> list[Measured]:
    for group in (target.computing, target.exchange):
        if group is not None:
            found = [each for each in group.measured if each.strategy == target.key.strategy]
            if found:
                return found
    return []


def _setting(profile: Profile, target: Target, wish: Wish, workers: int, own: Sequence[Measured]) -> Setting:
    models = own or (target.computing.measured if target.computing else [])
    like = max(models, key=lambda each: each.setting.workers).setting
    machine = profile.machine
    apart = wish.hosts or wish.workers_per_host or wish.bandwidth or wish.delay_s is not None
    if wish.workers_per_host:
        per_host = wish.workers_per_host
    elif wish.hosts:
        per_host = -(-workers // wish.hosts)
    elif like.emulated or like.hosts > 1:
        per_host = like.workers_per_host
    elif apart:
        per_host = crowd_of(replace(like, workers=workers, workers_per_host=workers), target.key, machine)[1]
    else:
        per_host = workers
    batch = wish.batch_per_worker or (wish.global_batch // workers if wish.global_batch else like.batch)
    servers = (wish.servers or max(like.servers, 1)) if strategy_named(target.key.strategy).servers else 0
    return replace(
        like,
        workers=workers,
        batch=batch,
        servers=servers,
        placement=(wish.server_placement or like.placement or "own") if servers else None,
        hosts=-(-workers // per_host),
        workers_per_host=per_host,
        emulated=like.emulated and not wish.cores_per_host,
        bandwidth=wish.bandwidth or like.bandwidth,
        delay_s=like.delay_s if wish.delay_s is None else wish.delay_s,
        bucket_mb=wish.bucket_mb or like.bucket_mb,
    )


def _crowd(profile: Profile, target: Target, wish: Wish, setting: Setting, own: Sequence[Measured]) -> tuple[int, int]:
    crowd, slots = crowd_of(setting, target.key, profile.machine)
    if wish.cores_per_host:
        slots = max(wish.cores_per_host // max(target.key.threads, 1), 1)
    most = max([crowd_of(each.setting, target.key, profile.machine)[0] for each in own], default=1)
    if crowd > max(_CROWDED * slots, _FAR * most):
        where = "emulated hosts, which share one machine" if setting.emulated else "one host"
        remedy = (
            "give hosts of their own: cores_per_host=1"
            if setting.emulated
            else "say how they are spread: workers_per_host=N interconnect.bandwidth=RATE"
        )
        message = (
            f"{setting.workers} workers on {where} would be {crowd} on {slots} processors, and no more "
            f"than {most} were measured together; {remedy}, or measure workers: {setting.workers}"
        )
        raise Refusal(message)
    return crowd, slots


def _link(
    profile: Profile, target: Target, wish: Wish, setting: Setting, own: Sequence[Measured]
) -> tuple[LinkFacts, Spread, bool]:
    """Return the link, what is uncertain of it beyond the group's factors, and whether those hold for it."""
    crosses = setting.hosts > 1 or (setting.emulated and setting.servers > 0)
    known = [each.link for each in own if each.link is not None and each.link.between_hosts == crosses]
    asked = crosses and (wish.bandwidth is not None or wish.delay_s is not None)
    row = matching(target.key.framework, target.key.strategy, replace(setting, emulated=crosses), profile.net)
    if row is not None:
        link = LinkFacts(
            start_s=row.start_s,
            rate=row.rate,
            source="net",
            between_hosts=crosses,
            nominal_rate=row.nominal_rate,
            alpha_s=row.alpha_s,
            error=abs(row.worst_error),
        )
        return (link, _EXACT, True) if any(each.source == "net" for each in known) else (link, spread_of(link), False)
    if known and not asked:
        best = min(known, key=lambda link: link.source == "believed")
        if wish.bandwidth is None:  # who knows the card of a host has hosts of which no more than one is asked for
            _needs_benchmark(best, setting, own)
        return best, _EXACT, True
    if asked:
        return _asked(setting, wish, known)
    inside = "between workers of one host" if not crosses else "between hosts"
    message = (
        f"no exchange {inside} was measured for {target.key.framework} with {target.key.strategy}; `steptime net` "
        f"would supply it{', or give interconnect.bandwidth=RATE' if crosses else ''}"
    )
    raise Refusal(message)


def _needs_benchmark(link: LinkFacts, setting: Setting, own: Sequence[Measured]) -> None:
    most = max(each.setting.workers for each in own)
    if link.source == "believed" and setting.workers > _FAR * most:
        message = (
            f"{setting.workers} workers are more than {_FAR:g} times the most measured ({most}), and steps alone do "
            "not show the latency that grows with them; `steptime net` would supply it"
        )
        raise Refusal(message)


def _asked(setting: Setting, wish: Wish, known: Sequence[LinkFacts]) -> tuple[LinkFacts, Spread, bool]:
    base = next((link for link in known if link.source != "believed"), None)
    if base is None:
        if wish.bandwidth is None:
            message = (
                "interconnect.delay alone says nothing of a link that nobody measured; give interconnect.bandwidth "
                "too, or measure it: `steptime net`"
            )
            raise Refusal(message)
        alpha = _BELIEVED_ALPHA if wish.delay_s is None else wish.delay_s + _BELIEVED_ALPHA
        start = _ALPHA_SPREAD if wish.delay_s is None else SPREADS["cluster"][0]
        believed = LinkFacts(
            start_s=LATENCIES * alpha,
            rate=_BELIEVED_SHARE * wish.bandwidth,
            source="believed",
            between_hosts=True,
            nominal_rate=wish.bandwidth,
            alpha_s=alpha,
        )
        return believed, (start, _SHARE_SPREAD), False
    reached = base.rate / base.nominal_rate if base.nominal_rate else _BELIEVED_SHARE
    rate = base.rate if wish.bandwidth is None else reached * wish.bandwidth
    alpha = base.alpha_s or base.start_s / LATENCIES
    start = base.start_s
    if wish.delay_s is not None:
        # Latencies per step stay; what the links themselves take is what was measured beside the nominal delay.
        start = base.start_s / alpha * max(wish.delay_s + _BELIEVED_ALPHA, 1e-6)
    link = base.model_copy(update={"rate": rate, "start_s": start, "nominal_rate": setting.bandwidth})
    return link, (0.2 if wish.delay_s is not None else 0.0, 0.0 if base.nominal_rate else _SHARE_SPREAD), True


def group_of(target: Target) -> Group:
    """Return the group that computes; raises Refusal where there is none."""
    if target.computing is None:
        raise Refusal(target.refused or "nothing was measured")
    return target.computing


def spread_draws(spread: float, rng: np.random.Generator, count: int) -> "np.typing.NDArray[np.float64]":
    """Return draws of a factor around 1."""
    drawn: np.typing.NDArray[np.float64] = np.exp(spread * rng.standard_normal(count))
    return drawn
