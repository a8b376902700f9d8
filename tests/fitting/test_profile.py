import json

import pytest
from world import World, a_profile, asked, observed

from steptime.errors import StoreError
from steptime.fitting.profile import read_profile, write_profile


@pytest.fixture(scope="module")
def profile():
    return a_profile(observed(World(), 1))


@pytest.fixture
def path(profile, tmp_path):
    write_profile(profile, tmp_path / "p.json")
    return tmp_path / "p.json"


def test_what_is_written_is_read(profile, path):
    assert read_profile(path) == profile


def test_a_profile_that_was_read_predicts_the_same(profile, path):
    assert asked(read_profile(path), 3) == asked(profile, 3)


def changed(path, **changes):
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, **changes}))
    return path


@pytest.mark.parametrize("schema", [0, 1, "2", None])
def test_another_schema_is_refused_with_the_place_and_the_remedy(path, schema):
    with pytest.raises(StoreError, match=r"key schema.*steptime fit") as caught:
        read_profile(changed(path, schema=schema))
    assert str(path) in str(caught.value)


def test_a_changed_file_is_refused_with_the_key(path):
    with pytest.raises(StoreError, match=r"machine\.cores"):
        read_profile(changed(path, machine={"cpu": None, "cores": "two", "gpus": 0}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 2}', "\0"])
def test_what_is_no_profile_is_refused(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(StoreError, match="steptime fit"):
        read_profile(tmp_path / "p.json")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(StoreError, match="steptime fit"):
            read_profile(path)
