"""What a study can name lies in the catalog; the packages above implement each of its names, and no other."""

from steptime.catalog.choices import LAUNCHERS as NAMED_LAUNCHERS
from steptime.environments.kinds import KINDS
from steptime.launchers.table import LAUNCHERS
from steptime.study.mistakes import KnownNames
from steptime.study.study import ENVIRONMENT_KINDS, EnvironmentChoice, Study


def test_every_launcher_of_the_catalog_is_implemented():
    assert set(LAUNCHERS) == set(KnownNames.installed().launchers) == set(NAMED_LAUNCHERS)


def test_every_kind_of_environment_that_a_study_can_name_is_implemented():
    assert set(KINDS) == set(ENVIRONMENT_KINDS)
    assert EnvironmentChoice().kind in KINDS


def test_the_keys_of_launchers_are_keys_of_a_study():
    assert {key for keys in NAMED_LAUNCHERS.values() for key in keys} <= set(Study.model_fields)
