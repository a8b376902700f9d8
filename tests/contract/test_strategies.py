"""What holds for the table of strategies."""

import pytest

from steptime.frameworks.manifest import load_manifests
from steptime.study.strategies import STRATEGIES


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_explained_in_a_line_without_a_full_stop(name):
    assert 20 < len(STRATEGIES[name]) < 110
    assert not STRATEGIES[name].endswith(".")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_known_to_a_framework(name):
    assert [room for room, manifest in load_manifests().items() if name in manifest.strategies]


def test_every_strategy_of_a_framework_is_in_the_table():
    known = {name for manifest in load_manifests().values() for name in manifest.strategies}
    assert known == set(STRATEGIES)


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name.startswith("ps_")])
def test_a_strategy_with_parameter_servers_has_them_in_every_framework(name):
    supports = [manifest.strategies[name] for manifest in load_manifests().values() if name in manifest.strategies]
    assert all(support.servers for support in supports)
    assert {support.synchronous for support in supports} == {name == "ps_sync"}
