"""Five studies that were measured before the code was rearranged give the same reports, profiles and predictions today.

Numbers may differ by a relative 1e-12, or by 1e-16: on the machine that measured, they are equal to the bit, but the
linear algebra of another processor rounds otherwise, and where two times of a tenth of a second are subtracted from
each other and nothing is left, what remains is this rounding itself.
"""

import json
import math
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from archives import STUDIES, stored, unpacked
from renamed import EXCLUDED, EXCLUDED_OF, EXCLUDED_OF_PROFILES, rename, rename_inner_factors, without_strategies
from typer.testing import CliRunner

from steptime.cli.app import app

FITTED = ["four-frameworks", "two-hosts", "stale-updates", "batches"]
PREDICTIONS = {
    "predict.json": ["--workers", "2,4,8,64"],
    "predict_links.json": ["--workers", "2,4,8", "interconnect.bandwidth=10Gbit/s,25Gbit/s", "cores_per_host=1"],
}
"""Arguments with which each stored file was made."""
TOLERANCE = 1e-12
ROUNDING = 1e-16


@pytest.fixture(scope="module")
def unpack(tmp_path_factory):
    """A function that returns a stored study's results folder, with the profile fitted to it beside it."""

    @cache
    def folder_of(study: str) -> Path:
        folder = unpacked(study, tmp_path_factory.mktemp(study))
        if study in FITTED:
            output_of("fit", str(folder))
        return folder

    return folder_of


def output_of(*arguments: str) -> str:
    """Return what the program prints; it must succeed."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def expected(study: str, name: str) -> Any:
    """Return a stored output with today's names."""
    return rename(json.loads(stored(study)[name]))


def differences(before: Any, after: Any, left_out: Collection[str] = EXCLUDED, path: str = "") -> list[str]:
    """Return a line for each value that is not what it was, leaving out the keys of ``left_out``."""
    if isinstance(before, dict) and isinstance(after, dict):
        parent = path.rpartition("/")[2].partition("[")[0]
        keys = [key for key in before | after if not {key, f"{parent}/{key}"} & set(left_out)]
        missing = [f"{path}/{key}: only {side}" for key in keys for side in sides(key, before, after)]
        common = [key for key in keys if key in before and key in after]
        pairs = [(before[key], after[key], left_out, f"{path}/{key}") for key in common]
        return missing + [line for pair in pairs for line in differences(*pair)]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, left_out, f"{path}[{index}]")]
    if isinstance(before, float) and isinstance(after, (int, float)):
        same = math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=ROUNDING)
    else:
        same = before == after
    return [] if same else [f"{path}: {str(before)[:200]} -> {str(after)[:200]}"]


def sides(key: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return on which side alone a key stands, if it does."""
    return [] if key in before and key in after else ["before" if key in before else "after"]


@pytest.mark.parametrize("study", STUDIES)
def test_a_stored_study_gives_the_report_that_it_gave_before(study, unpack):
    """The JSON report of a stored study is the one that was made of it when it was measured."""
    report = json.loads(output_of("report", str(unpack(study)), "--json"))

    left_out = {**EXCLUDED, **EXCLUDED_OF.get(study, {})}
    assert differences(expected(study, "report.json"), report, left_out) == []


@pytest.mark.parametrize("study", FITTED)
def test_a_stored_study_gives_the_profile_that_it_gave_before(study, unpack):
    """The profile fitted to a stored study has the parameters, draws and held-out errors that it had."""
    folder = unpack(study)
    profile = json.loads(folder.with_name("study.profile.json").read_text())

    before = rename_inner_factors(expected(study, "profile.json"))
    for each in (before, profile):
        each["groups"] = without_strategies(each["groups"], study)
    assert differences(before, profile, {**EXCLUDED, **EXCLUDED_OF_PROFILES}) == []


@pytest.mark.parametrize(
    ("study", "name"), [(study, name) for study in FITTED for name in PREDICTIONS if name in stored(study)]
)
def test_a_stored_profile_gives_the_predictions_that_it_gave_before(study, name, unpack):
    """Predictions for more workers, and for other links, are those that were made when the study was measured."""
    profile = unpack(study).with_name("study.profile.json")
    predictions = json.loads(output_of("predict", str(profile), *PREDICTIONS[name], "--json"))

    before = expected(study, name)
    for each in (before, predictions):
        each["predictions"] = without_strategies(each["predictions"], study)
    assert differences(before, predictions) == []
