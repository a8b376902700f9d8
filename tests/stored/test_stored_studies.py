"""Five studies that were measured before the code was rearranged give the same reports today.

Numbers may differ by a relative 1e-12, or by 1e-16: on the machine that measured, they are equal to the bit, but the
linear algebra of another processor rounds otherwise, and where two times of a tenth of a second are subtracted from
each other and nothing is left, what remains is this rounding itself.
"""

import json
import math
import subprocess
import sys
from collections.abc import Collection
from functools import cache
from typing import Any

import pytest
from renamed import EXCLUDED, EXCLUDED_OF, rename, with_mean_steps
from stored_studies import STUDIES, output_of, stored, unpacked

TOLERANCE = 1e-12
ROUNDING = 1e-16


@pytest.fixture(scope="module")
def unpack(tmp_path_factory):
    """A function that returns a stored study's results folder, with the profile fitted to it beside it."""
    return cache(lambda study: unpacked(study, tmp_path_factory.mktemp(study)))


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


@pytest.mark.sampled
@pytest.mark.parametrize("study", STUDIES)
def test_a_stored_study_gives_the_report_that_it_gave_before(study, unpack):
    """The JSON report of a stored study is the one that was made of it when it was measured."""
    report = json.loads(output_of("report", str(unpack(study)), "--json"))

    left_out = {**EXCLUDED, **EXCLUDED_OF.get(study, {})}
    assert differences(with_mean_steps(expected(study, "report.json")), report, left_out) == []


def test_a_report_waits_for_no_solver_no_table_library_and_no_driver(unpack):
    heavy = ["scipy.optimize", "scipy.interpolate", "scipy.stats", "polars", "altair", "pynvml"]
    program = f"""
import sys
from steptime.cli import app
app.run_program(["report", {str(unpack("strong-scaling"))!r}])
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
