"""Curves whose truth is known: drawn from what is believed, with noise, by three seeds."""

from dataclasses import replace

import numpy as np
import pytest
from tables import curve

from steptime.curves.curve import workers
from steptime.curves.posterior import Sampling, predict, weigh_samples
from steptime.curves.shape import INDEX, PARAMETERS, expert_priors, joint_prior, priors_for, relative_times

_CURVES = 80
_SEEDS = (1, 2, 3)
_COUNTS = {1: 0.3, 2: 0.3, 4: 0.3, 8: 0.3, 16: 0.3, 32: 0.3, 128: 0.3}
_NOISE = 0.05
_SAMPLING = Sampling(log_samples=11)

_DRAWN = [parameter.name for parameter in PARAMETERS if parameter.name != "noise"]
"""All parameters but the one that is the same in all curves."""


@pytest.fixture(scope="module")
def form(tmp_path_factory):
    """A curve known up to 16 workers of 4 hosts."""
    changes = {"workers_per_host": "4", "inter_host_gbps": "10", "framework": "Horovod (no overlap)"}
    return curve(tmp_path_factory.mktemp("synthetic"), _COUNTS, holdout={32, 128}, **changes)


@pytest.fixture(scope="module")
def priors():
    noise = replace(expert_priors()["noise"], mean=float(np.log(_NOISE)), spread=0.1)
    return {**expert_priors(), "noise": noise}


@pytest.fixture(scope="module", params=_SEEDS)
def drawn(request, form):
    """Curves with the parameters that made them, and relative noise of 5 %."""
    generator = np.random.default_rng(request.param)
    return [_draw(form, generator) for _ in range(_CURVES)]


def _draw(form, generator):
    points = (*form.fit, *form.holdout)
    count = workers(points)
    hosts = np.array([form.hosts(point.workers) for point in points], dtype=float)
    prior = joint_prior(expert_priors())
    parameters = generator.normal(prior.mean, np.diag(prior.factor))[None]
    parameters[0, INDEX["noise"]] = np.log(_NOISE)
    walk, host_walk, bend, crossing = (
        np.exp(parameters[0, INDEX[name]]) for name in ("walk", "host_walk", "bend", "crossing")
    )
    drift = walk * _walked(count, generator) + host_walk * _walked(hosts, generator)
    drift += bend * _integrated(np.maximum(np.log2(hosts) - 1.0, 0.0), generator)
    drift += crossing * generator.normal() * (hosts > 1) + _NOISE * generator.normal(size=len(count))
    relative = relative_times(form, count, np.full(len(points), np.nan), 0.3, parameters)[0]
    changed = [
        replace(point, step_time=0.3 * r * np.exp(d)) for point, r, d in zip(points, relative, drift, strict=True)
    ]
    known = len(form.fit)
    return replace(form, fit=tuple(changed[:known]), holdout=tuple(changed[known:])), parameters[0]


def _integrated(doublings, generator):
    """Return an integrated random walk at the doublings, in small steps."""
    steps = np.linspace(0.0, max(doublings.max(), 1.0), 4001)
    slope = np.cumsum(generator.normal(size=4001)) * np.sqrt(steps[1])
    return np.interp(doublings, steps, np.cumsum(slope) * steps[1] - slope * steps[1])


def _walked(steps, generator):
    """A random walk with a variance of one per doubling."""
    return np.cumsum(np.sqrt(np.diff(np.log2(steps), prepend=0.0)) * generator.normal(size=len(steps)))


def test_nine_of_ten_truths_lie_in_their_intervals(form, priors):
    """Over all seeds: 480 points, two of each curve."""
    inside = []
    for seed in _SEEDS:
        generator = np.random.default_rng(seed)
        for _ in range(_CURVES):
            one, _ = _draw(form, generator)
            asked = [(point.workers, point.servers) for point in one.holdout]
            found = predict(one, asked, priors, _SAMPLING)
            inside += [each.low <= point.step_time <= each.high for each, point in zip(found, one.holdout, strict=True)]
    assert 0.85 <= np.mean(inside) <= 0.95


def test_parameters_are_recovered_inside_their_intervals(drawn, priors):
    """Of all parameters of all curves nine in ten; of each alone no fewer than chance would leave of 80 curves."""
    inside = {name: [] for name in _DRAWN}
    for one, truth in drawn:
        weighted = weigh_samples(one, one.fit, one.holdout, priors, _SAMPLING)
        for name in _DRAWN:
            values = weighted.parameters[:, INDEX[name]]
            order = np.argsort(values)
            low, high = np.interp([0.05, 0.95], np.cumsum(weighted.weights[order]), values[order])
            inside[name].append(low <= truth[INDEX[name]] <= high)
    shares = {name: np.mean(found) for name, found in inside.items()}
    assert 0.87 <= np.mean(list(shares.values())) <= 0.93
    assert all(0.78 <= share <= 1.0 for share in shares.values()), shares


GROWTHS = {
    "none": lambda doublings: 0.0 * doublings,
    "logarithm": lambda doublings: 0.02 * doublings,
    "root": lambda doublings: 0.03 * (2 ** (doublings / 2) - 1),
    "square": lambda doublings: 0.01 * doublings**2,
}
_BEYOND = {"none": 32, "logarithm": 32, "root": 32, "square": 8}
"""Times the workers of the fit, to which the interval holds; a growth by the square leaves it at sixteen."""


@pytest.mark.parametrize("growth", GROWTHS)
def test_intervals_far_beyond_a_fit_on_several_hosts_hold_growth_that_accelerates(growth, tmp_path):
    """Without its own drift the growth of the first two doublings of hosts went on, with 13 % at 32 times as many."""
    counts = np.array([1, 8, 16, 32, 64, 128, 256, 512, 1024])
    doublings = np.log2(np.maximum(counts / 8, 1))
    times = dict(
        zip(counts.tolist(), (0.3 * (1.0 + 0.02 * (counts > 1) + GROWTHS[growth](doublings))).tolist(), strict=True)
    )
    held_out = {count for count in times if 32 < count <= 32 * _BEYOND[growth]}
    changes = {"workers_per_host": "8", "inter_host_gbps": "200", "nics_per_host": "8", "transport": "rdma"}
    form = curve(tmp_path, {n: t for n, t in times.items() if n <= 32 or n in held_out}, holdout=held_out, **changes)

    found = predict(form, [(count, None) for count in sorted(held_out)], priors_for("none of them"))

    assert all(one.low <= times[count] <= one.high for count, one in zip(sorted(held_out), found, strict=True))
