"""The sets of hosts that launches of a study ran on."""

from summaries import summary

from steptime.analysis.summary_form import SiteForm
from steptime.report.clusters import sites

FIRST = SiteForm(hosts=["n0", "n1"], sources=["Slurm job 7"], launches=12, blocks=[0, 1, 2])
SECOND = SiteForm(hosts=["n1", "n2"], sources=[], launches=1, blocks=[4])


def test_a_study_without_hosts_says_nothing_of_them():
    assert sites(summary()) == []


def test_one_site_is_named_with_its_job_and_blocks():
    assert sites(summary(sites=[FIRST])) == ["n0, n1 (Slurm job 7): 12 launches in blocks 0 to 2"]


def test_several_sites_say_what_is_compared():
    _, second, comparisons = sites(summary(sites=[FIRST, SECOND]))
    assert second == "n1, n2: 1 launch in block 4"
    assert "launches of the same blocks only" in comparisons
