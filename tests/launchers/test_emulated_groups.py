"""What is written into control groups, in a folder that stands for the kernel's; nothing here needs root."""

from pathlib import Path

import pytest

from steptime.errors import LaunchError
from steptime.launchers.emulation.control_groups import Groups, new_owner

TEXTS = {
    1: {"cpu.shares": "262144", "h0": {}, "h1": {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "5000"}},
    2: {"cpu.weight": "10000", "cgroup.subtree_control": "+cpu", "h0": {}, "h1": {"cpu.max": "5000 10000"}},
}


def contents(folder: Path) -> dict:
    return {path.name: contents(path) if path.is_dir() else path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("version", [1, 2])
def test_only_a_slow_host_gets_a_quota_and_all_are_below_a_favoured_parent(tmp_path, version):
    owner = new_owner()
    groups = Groups(version, tmp_path)
    whole, half = groups.make(owner, [None, 0.5])
    assert contents(tmp_path / owner.mark) == TEXTS[version]
    assert groups.quota_of(half) == 0.5
    assert groups.is_favoured(owner)
    assert whole.name == "h0"
    assert list(groups.owners()) == [owner]


@pytest.mark.parametrize(
    ("version", "texts"),
    [(1, {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}), (2, {"cpu.max": "max 100000\n"})],
)
def test_a_group_without_a_quota_is_read_as_such(tmp_path, version, texts):
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert Groups(version, tmp_path).quota_of(tmp_path) is None


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (1, "nr_periods 80\nnr_throttled 40\nthrottled_time 2500000000\n"),
        (2, "usage_usec 1\nnr_periods 80\nnr_throttled 40\nthrottled_usec 2500000\n"),
    ],
)
def test_both_versions_count_in_their_own_units(tmp_path, version, text):
    (tmp_path / "cpu.stat").write_text(text)
    found = Groups(version, tmp_path).throttling(tmp_path)
    assert (found.seconds, found.throttled, found.periods) == (2.5, 40, 80)


def test_a_kernel_that_refuses_is_quoted(tmp_path):
    with pytest.raises(LaunchError, match=r"no control groups could be made in .*No such file"):
        Groups(1, tmp_path / "gone").make(new_owner(), [None])
