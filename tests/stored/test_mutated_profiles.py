"""A fitted profile in which one number after the other is replaced: it is refused, or predicts what a step can have."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from stored_studies import unpacked

from steptime.cli.predictions import to_json
from steptime.errors import StoreError
from steptime.fitting.profile import read_profile
from steptime.predict.predict import predict
from steptime.predict.query import read_queries

VALUES = ["NaN", "0", "1e308"]
FURTHER = ["Infinity", "-Infinity", "-1", "1e-320", '"1"', "null", "1" + "0" * 400, "true"]
ASKED = [[], ["interconnect.bandwidth=10Gbit/s", "interconnect.delay=1ms", "batch_per_worker=64"]]
_PLACE = '"@"'


def numbers(value: Any, path: tuple[Any, ...] = ()):
    """Yield the path of every number, but of several lists of one kind only of the first."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in items:
            yield from numbers(each, (*path, name))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def kinds(data: dict[str, Any]) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """Return the path of one number of each kind: those that differ in places of lists alone are of one."""
    found: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for path in numbers(data):
        found.setdefault(tuple("*" if isinstance(part, int) else part for part in path), path)
    return found


def with_value(data: dict[str, Any], path: tuple[Any, ...], text: str) -> str:
    node = data
    for part in path[:-1]:
        node = node[part]
    before, node[path[-1]] = node[path[-1]], "@"
    whole = json.dumps(data)
    node[path[-1]] = before
    return whole.replace(_PLACE, text)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> dict[str, Any]:
    folder = unpacked("two-hosts", tmp_path_factory.mktemp("two-hosts"))
    found = json.loads(folder.with_name("study.profile.json").read_text())
    # One model of several workers is enough for all kinds of numbers.
    found["groups"] = [group for group in found["groups"] if group["key"]["strategy"] != "single"][:1]
    return found


def outcome(path: Path, place: tuple[Any, ...]) -> str:
    """Return what a profile with a replaced number led to; ``wrong`` and ``unnamed`` are not to be."""
    try:
        profile = read_profile(path)
    except StoreError as error:
        name = next(part for part in reversed(place) if isinstance(part, str))
        return "refused" if name in str(error) else f"unnamed: {error}"
    for overrides in ASKED:
        for each in predict(profile, [1, 2, 4], read_queries(overrides, profile)):
            json.dumps(to_json(each), allow_nan=False)
            step = each.step_s
            if step is not None and not 0.0 < step.low <= step.value <= step.high < math.inf:
                return f"wrong: {step}"
    return "predicted"


@pytest.mark.sampled
@pytest.mark.parametrize("values", [VALUES, FURTHER], ids=["usual", "further"])
def test_a_changed_number_is_refused_by_its_name_or_predicts_a_step_that_can_be(data, tmp_path, values):
    path, found = tmp_path / "changed.json", {}
    for kind, place in kinds(data).items():
        for text in values:
            path.write_text(with_value(data, place, text))
            found[".".join(kind), text[:20]] = outcome(path, place)

    assert {each: what for each, what in found.items() if what not in ("refused", "predicted")} == {}
    assert list(found.values()).count("refused") > len(found) / 2


@pytest.mark.parametrize(("part", "value"), [("value", 1e-3), ("low", 0.0), ("high", 9.0)])
def test_a_number_that_does_not_follow_from_its_draws_is_refused(data, tmp_path, part, value):
    name = "forward_per_sample_s"
    (tmp_path / "changed.json").write_text(with_value(data, ("groups", 0, "parameters", name, part), str(value)))

    with pytest.raises(StoreError, match=rf"parameters\.{name}\.{part}.*by its draws"):
        read_profile(tmp_path / "changed.json")


def test_a_parameter_without_which_nothing_is_predicted_is_missed(data, tmp_path):
    parameters = data["groups"][0]["parameters"]
    without = {name: each for name, each in parameters.items() if name != "timing"}
    whole = {**data, "groups": [{**data["groups"][0], "parameters": without}]}
    (tmp_path / "changed.json").write_text(json.dumps(whole))

    with pytest.raises(StoreError, match="timing is missing"):
        read_profile(tmp_path / "changed.json")
