"""A study on emulated hosts, as a user types it."""

import json
import os

from emulating import skip_where_impossible
from program import STUDY, launches, report, steptime, write_study

from steptime.launchers.emulation.network import NAMESPACES

CLUSTER = "launcher: emulated\ncluster: {hosts: 2, bandwidth: 100Mbit/s, cpu_share: {1: 50%}}\n"


def test_a_study_on_emulated_hosts_keeps_what_it_found_of_them(tmp_path):
    skip_where_impossible()
    study = write_study(tmp_path, STUDY + CLUSTER)
    steptime("run", study, "launches={min: 1, max: 1}", "target=50%", "-o", "results", cwd=tmp_path)

    assert [trial["hosts"] for trial in report(tmp_path, "results")["trials"]] == [1, 2]
    kept = {len(launch["cluster"]["hosts"]): launch["cluster"] for launch in launches(tmp_path / "results")}
    assert [host["cpu_quota_cores"] for host in kept[2]["hosts"]] == [None, 0.5]
    assert (len(kept[1]["paths"]), len(kept[2]["paths"])) == (0, 1)
    assert not list(NAMESPACES.glob(f"steptime-{os.getpid()}-*"))


def test_a_dry_run_shows_the_commands_on_the_hosts_and_makes_none(tmp_path):
    study = write_study(tmp_path, STUDY + CLUSTER)
    done = steptime("run", study, "--dry-run", "--json", cwd=tmp_path)
    assert "STEPTIME_INTERFACE=eth0" in json.dumps(json.loads(done.stdout))
