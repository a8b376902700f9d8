"""Curves whose truth is known: drawn from what is believed, with noise."""

from dataclasses import replace

import numpy as np
import pytest
from tables import curve

from steptime.evidence.curve import workers
from steptime.evidence.draws import INDEX, expert_beliefs, normals
from steptime.evidence.posterior import explain, predict
from steptime.evidence.shape import relative_times

_CURVES = 80
_COUNTS = {1: 0.3, 2: 0.3, 4: 0.3, 8: 0.3, 16: 0.3, 32: 0.3, 128: 0.3}
_NOISE = 0.05


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Curves with the parameters that made them: relative noise of 5 %, known up to 16 workers of 4 hosts."""
    changes = {"workers_per_host": "4", "inter_host_gbps": "10", "framework": "Horovod (no overlap)"}
    form = curve(tmp_path_factory.mktemp("synthetic"), _COUNTS, holdout={32, 128}, **changes)
    points = (*form.fit, *form.holdout)
    count, unknown = workers(points), np.full(len(points), np.nan)
    generator = np.random.default_rng(1)
    beliefs = expert_beliefs()
    believed = normals(beliefs)
    made = []
    for _ in range(_CURVES):
        parameters = generator.normal(believed.mean, believed.spread)[None]
        parameters[0, INDEX["noise"]] = np.log(_NOISE)
        deviation = np.exp(parameters[0, [INDEX["walk"], INDEX["crossing"]]]) * generator.normal(size=(len(count), 2))
        steps = np.sqrt(np.diff(np.log2(count), prepend=0.0))
        drift = np.cumsum(steps * deviation[:, 0]) + (count > 4) * deviation[0, 1]
        noise = _NOISE * generator.normal(size=len(count))
        times = 0.3 * relative_times(form, count, unknown, 0.3, parameters)[0] * np.exp(drift + noise)
        changed = [replace(point, step_time=float(seconds)) for point, seconds in zip(points, times, strict=True)]
        known = len(form.fit)
        made.append((replace(form, fit=tuple(changed[:known]), holdout=tuple(changed[known:])), parameters[0]))
    noisy = {**beliefs, "noise": replace(beliefs["noise"], mean=float(np.log(_NOISE)), spread=0.1)}
    return made, noisy


def test_nine_of_ten_truths_lie_in_their_intervals(drawn):
    made, beliefs = drawn
    inside = []
    for one, _ in made:
        found = predict(one, [(point.workers, point.servers) for point in one.holdout], beliefs)
        inside += [each.low <= point.step_time <= each.high for each, point in zip(found, one.holdout, strict=True)]
    assert 0.82 <= np.mean(inside) <= 0.98


@pytest.mark.parametrize("name", ["efficiency", "stack_rate", "inside", "crowding", "walk"])
def test_parameters_are_recovered_inside_their_intervals(drawn, name):
    made, beliefs = drawn
    inside = []
    for one, truth in made:
        weighted = explain(one, one.fit, one.holdout, beliefs)
        values = weighted.parameters[:, INDEX[name]]
        order = np.argsort(values)
        low, high = np.interp([0.05, 0.95], np.cumsum(weighted.weights[order]), values[order])
        inside.append(low <= truth[INDEX[name]] <= high)
    assert 0.82 <= np.mean(inside) <= 0.98
