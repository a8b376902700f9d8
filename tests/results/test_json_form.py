"""Numbers with an interval, as JSON has them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import steptime
from steptime.results.json_form import NOT_MEASURED, Interval, IntervalOverLaunches, JsonForm
from steptime.results.jsonlines import json_text

SOURCES = Path(steptime.__file__).parent


class Numbers(JsonForm):
    """One of each kind."""

    open: Interval
    known: Interval[float, float]
    over_launches: IntervalOverLaunches
    unknown: Interval[float | None] = NOT_MEASURED


NUMBERS = Numbers(
    open=Interval(1, None, np.float64(2.5)), known=Interval(2, 1, 3), over_launches=IntervalOverLaunches(1, least=0)
)


def test_json_has_every_bound_and_null_where_none_is_known():
    assert NUMBERS.model_dump_json() == (
        '{"open":{"value":1.0,"low":null,"high":2.5},"known":{"value":2.0,"low":1.0,"high":3.0},'
        '"over_launches":{"value":1.0,"low":null,"high":null,"least":0.0,"most":null},'
        '"unknown":{"value":null,"low":null,"high":null}}'
    )


def test_numbers_are_floats_whatever_they_were_made_of():
    assert json.dumps(NUMBERS.model_dump()) == json.dumps(NUMBERS.model_dump(mode="json"))
    assert {type(each) for each in (NUMBERS.known.value, NUMBERS.open.high)} == {float}


def test_an_interval_is_read_back_as_it_was_written():
    assert Numbers.model_validate_json(NUMBERS.model_dump_json()) == NUMBERS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("known", {"value": 1.0, "low": None, "high": 2.0}),
        ("open", {"value": None, "low": None, "high": None}),
        ("open", {"value": 1.0, "low": 0.5, "high": 2.0, "level": 0.9}),
        ("unknown", {"value": 1.0, "low": 0.5}),
    ],
)
def test_a_bound_that_must_be_known_and_a_key_that_is_none_of_an_interval_are_errors(field, value):
    with pytest.raises(ValidationError, match=field):
        Numbers.model_validate(NUMBERS.model_dump() | {field: value})


def test_json_that_the_program_writes_has_null_where_a_number_is_not_finite():
    text = json_text({"a": [math.nan, 1.0], "b": {"c": -math.inf}}, indent=1)

    assert json.loads(text, parse_constant=pytest.fail) == {"a": [None, 1.0], "b": {"c": None}}


def test_no_part_of_the_core_that_prints_json_writes_it_by_itself():
    """The worker half and what travels between processes have no part in it."""
    shown = ("cli", "report", "document", "exports")
    computed = ("predict", "fitting", "curves", "results", "statistics", "validity", "attached", "analysis")
    folders = [SOURCES / name for name in (*shown, *computed)]
    written = {
        str(path.relative_to(SOURCES))
        for folder in folders
        for path in folder.rglob("*.py")
        if "json.dumps(" in path.read_text()
    }

    assert written == {"results/net_records.py", "results/folder.py"}, "an id, and a comparison"
