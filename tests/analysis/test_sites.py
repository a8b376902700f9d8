"""Launches of one study on two sets of hosts, of which the second is slower: what is compared, and in what order."""

import numpy as np
import pytest
from simulated import a_launch, a_store, a_trial

from steptime.analysis.sites import best_first
from steptime.analysis.summary import summarise
from steptime.results.store import Store
from steptime.statistics.comparison import Measured, compare_trials
from steptime.statistics.launch_times import launch_times

FAST, SLOW = ["n0", "n1"], ["n2", "n3"]
SLOWER = 1.5
"""How many times as long a step takes on the second set of hosts."""


def launches(trial, time_s, sites):
    """Return a launch for each block, on the hosts that ``sites`` gives it."""
    found = []
    for number, (block, site) in enumerate(sites.items()):
        times = time_s * (SLOWER if site == SLOW else 1.0) * np.exp(1e-3 * np.sin(np.arange(50.0) + block))
        began = f"2026-01-01T00:00:{block:02d}.000+00:00"
        found.append(a_launch(trial, number, times=times.tolist(), block=block, site=site, started_at=began))
    return found


def measured(framework, time_s, sites):
    trial = a_trial(framework=framework)
    return Measured(trial, launch_times(launches(trial, time_s, sites), "single"))


QUICK = measured("quick", 0.10, {0: FAST, 3: SLOW, 4: SLOW})
"""Two of its launches were on the slow hosts."""
LATE = measured("late", 0.11, {0: FAST, 1: FAST, 2: FAST, 3: SLOW})


def test_launches_of_blocks_that_only_one_trial_has_do_not_count_where_sites_differ():
    assert compare_trials(LATE, QUICK).ratio == pytest.approx(1.1, rel=1e-3)


def test_a_trial_that_ran_on_slow_hosts_more_often_is_no_slower_for_that():
    assert [each.trial.framework for each in best_first([LATE, QUICK])] == ["quick", "late"]


def test_a_trial_alone_on_a_site_of_its_own_is_not_the_best_of_the_others():
    alone = measured("alone", 0.01, {5: FAST})
    assert [each.trial.framework for each in best_first([alone, LATE, QUICK])] == ["quick", "late"]


@pytest.fixture
def store(tmp_path) -> Store:
    """A folder with two trials on two sites, and one on the second alone."""
    made = a_store(tmp_path / "results")
    parts = {"quick": {0: FAST, 1: SLOW}, "late": {0: FAST, 2: SLOW}, "apart": {5: SLOW}}
    for (framework, sites), time_s in zip(parts.items(), (0.1, 0.11, 0.12), strict=True):
        trial = a_trial(framework=framework)
        made.add_trial(trial)
        for launch in launches(trial, time_s, sites):
            made.append(launch)
    sources = [
        {"hosts": [{"name": name} for name in hosts], "source": f"Slurm job {job}"}
        for job, hosts in ((7, FAST), (8, SLOW), (9, SLOW))
    ]
    made.put("sites", {"sites": sources})
    return made


def test_the_summary_names_each_site_with_its_blocks_and_who_named_it(store):
    shown = [(site.hosts, site.sources, site.launches, site.blocks) for site in summarise(store).sites]
    assert shown == [(FAST, ["Slurm job 7"], 2, [0]), (SLOW, ["Slurm job 8", "Slurm job 9"], 3, [1, 2, 5])]


def test_a_trial_without_a_block_in_common_with_the_best_has_no_rank_and_says_why(store):
    found = summarise(store)
    assert [place.trial.split("-")[0] for place in found.ranking] == ["quick", "late"]
    (apart,) = [trial for trial in found.trials if trial.framework == "apart"]
    assert apart.status == "unranked"
    assert "n2, n3" in apart.reason


def test_a_trial_on_two_sites_is_flagged_with_both(store):
    (quick,) = [trial for trial in summarise(store).trials if trial.framework == "quick"]
    assert "launches on several sites: n0, n1 (1 launch); n2, n3 (1 launch)" in quick.flags
