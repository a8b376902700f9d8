"""The blocks of launches of a study that goes on on other hosts, and launches in which a host died."""

from dataclasses import replace

from test_block_runner import launch
from trials import trial

from steptime.runner.block_runner import Schedule, StoppingRule
from steptime.runner.trial_runs import block_on_site

ONE, OTHER = trial("a"), trial("b")
FIRST, SECOND = ["n0", "n1"], ["n2", "n3"]


def schedule(*launches: tuple[object, int, int, list[str]]) -> Schedule:
    """Return the schedule of two trials after ``launches``: trial, number, block and site."""
    records: dict[str, list] = {}
    for of, number, block, site in launches:
        records.setdefault(of.id, []).append(replace(launch(of, number), block=block, site=site))
    rule = StoppingRule(least=9, most=9, failures_count=True)
    return Schedule([ONE, OTHER], rule, seed="1", records=records)


def test_on_one_site_a_block_has_the_number_of_its_launches():
    assert block_on_site(schedule(), 0, FIRST) == 0
    assert block_on_site(schedule((ONE, 0, 0, FIRST), (OTHER, 0, 0, FIRST)), 1, FIRST) == 1


def test_a_block_that_was_begun_elsewhere_is_begun_anew():
    cut = schedule((ONE, 0, 0, FIRST), (OTHER, 0, 0, FIRST), (ONE, 1, 1, FIRST))
    assert block_on_site(cut, 1, SECOND) == 2


def test_the_next_block_of_the_new_site_has_both_trials():
    launches = [(ONE, 0, 0, FIRST), (OTHER, 0, 0, FIRST), (ONE, 1, 1, FIRST), (OTHER, 1, 2, SECOND)]
    assert block_on_site(schedule(*launches), 2, SECOND) == 3


def test_a_site_that_comes_back_gets_blocks_of_its_own():
    launches = [(ONE, 0, 0, FIRST), (OTHER, 0, 0, FIRST), (ONE, 1, 1, SECOND), (OTHER, 1, 1, SECOND)]
    assert block_on_site(schedule(*launches), 2, FIRST) == 2


def test_a_launch_in_which_a_host_died_does_not_count():
    lost = replace(launch(ONE, 0, "failed"), lost_hosts=["n1"])
    rule = StoppingRule(least=1, most=1, failures=1, failures_count=True)
    assert Schedule([ONE], rule, seed="1", records={ONE.id: [lost]}).unfinished() == [ONE]


def test_what_takes_the_place_of_a_launch_elsewhere_gets_a_block_of_its_own():
    """Launch 1 of one trial ran on the first site and was set aside: its place there cannot be taken."""
    launches = [
        (ONE, 0, 0, FIRST),
        (OTHER, 0, 0, FIRST),
        (OTHER, 1, 1, FIRST),
        (ONE, 2, 2, SECOND),
        (OTHER, 2, 2, SECOND),
    ]
    assert schedule(*launches).next_number(ONE) == 1
    assert block_on_site(schedule(*launches), 1, SECOND) == 3
