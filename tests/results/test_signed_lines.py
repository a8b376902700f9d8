"""Lines that are parsed once, since their bytes show schema and checksum; forged ones are refused all the same."""

import hashlib
import json

import pytest
from simulated import a_launch, a_trial

from steptime.errors import StoreError
from steptime.results.jsonlines import CHECKSUM, parse_line, schema_of_signed, signed
from steptime.results.record_kinds import TIMING
from steptime.results.store import Store

TRIAL = a_trial()


def signed_text(text: str) -> bytes:
    """Return the line of any object's text with the checksum that fits it, as a forger would write it."""
    data = text.encode()[:-1]
    return data + b',"checksum":"' + hashlib.sha256(data).hexdigest()[:16].encode() + b'"}\n'


def line_of_launch() -> str:
    """Return the object of a launch as text, in the order of a line's keys."""
    return json.dumps({**a_launch(TRIAL).to_json(), "schema": 2}, separators=(",", ":"))


def a_store_with(tmp_path, raw: bytes) -> Store:
    """Return a results folder whose one trial has this line of records."""
    store = Store.create(tmp_path / "results", study_text="", study_json={})
    store.add_trial(TRIAL)
    (store.path / "trials" / TRIAL.id / TIMING.file).write_bytes(raw)
    return store


def test_a_line_that_steptime_wrote_shows_its_schema_without_being_parsed():
    assert schema_of_signed(signed(json.loads(line_of_launch()))) == 2


@pytest.mark.parametrize(
    "forged",
    [
        lambda text: text[:-1] + ',"schema":99}',
        lambda text: text[:-1] + ',"sch\\u0065ma":99}',
        lambda text: text[:-1] + ',"further":NaN}',
        lambda text: text.replace('{"schema":2,', "{"),
        lambda text: text.replace('{"schema":2,', '{ "schema":2,'),
    ],
    ids=["schema twice", "schema twice, escaped", "no number", "no schema", "other spaces"],
)
def test_a_signed_line_of_another_form_is_parsed_for_its_schema(forged):
    assert schema_of_signed(signed_text(forged(line_of_launch()))) is None


@pytest.mark.parametrize("place", range(0, 200, 7))
def test_a_line_with_a_changed_byte_shows_no_schema(place):
    raw = bytearray(signed(json.loads(line_of_launch())))
    raw[place] ^= 1
    assert schema_of_signed(bytes(raw)) is None


def test_a_second_schema_that_is_newer_refuses_the_folder(tmp_path):
    store = a_store_with(tmp_path, signed_text(line_of_launch()[:-1] + ',"schema":99}'))
    with pytest.raises(StoreError, match="has schema 99"):
        store.launches(TRIAL.id)


def test_the_last_of_two_kinds_counts(tmp_path):
    store = a_store_with(tmp_path, signed_text(line_of_launch()[:-1] + ',"kind":"ablation"}'))
    assert store.launches(TRIAL.id) == []
    assert "it is a record of 'ablation', not of 'launch'" in store.problems[0]


def test_a_number_that_json_lacks_is_damage_in_a_key_that_is_left_out_too(tmp_path):
    store = a_store_with(tmp_path, signed_text(line_of_launch()[:-1] + ',"further":NaN}'))
    assert store.launches(TRIAL.id) == []


def test_facts_that_repeat_but_for_one_type_are_both_examined(tmp_path):
    good = json.loads(line_of_launch())
    bad = {**good, "launch": 1, "environment": {**good["environment"], "name": 5}}
    store = a_store_with(tmp_path, signed(good) + signed(bad))
    assert [launch.launch for launch in store.launches(TRIAL.id)] == [0]


def test_a_record_has_no_field_for_the_kind_of_its_line(tmp_path):
    (launch,) = a_store_with(tmp_path, signed(json.loads(line_of_launch()))).launches(TRIAL.id)
    assert launch == a_launch(TRIAL)
    assert vars(launch).keys() == vars(a_launch(TRIAL)).keys()


def test_what_shows_its_schema_is_an_object_with_a_checksum_that_fits():
    raw = signed(json.loads(line_of_launch()))
    line = parse_line(1, raw)
    assert line.verified
    assert (line.value or {})["schema"] == schema_of_signed(raw)
    assert CHECKSUM in (line.value or {})
