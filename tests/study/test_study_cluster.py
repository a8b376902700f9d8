"""The key ``cluster`` of a study."""

from dataclasses import replace

import pytest

from steptime.errors import StudyError
from steptime.study.study_file import read_study

SMALLEST = "workloads: lenet5\nframeworks: pytorch\n"


@pytest.fixture
def reading(known, tmp_path):
    """Read the text of a study that may use the launcher ``emulated``."""

    def read(text):
        path = tmp_path / "race.yaml"
        path.write_text(SMALLEST + text)
        return read_study(path, [], replace(known, launchers=("local", "mpi", "emulated")))

    return read


def test_a_cluster_is_written_as_people_write_it(reading):
    cluster = reading(
        "launcher: emulated\ncluster: {hosts: 4, bandwidth: 200Mbit/s, delay: 2ms, cpu_share: {2: 50%}}"
    ).cluster
    assert (cluster.hosts, cluster.workers_per_host) == (4, 1)
    assert (cluster.bandwidth, cluster.delay, cluster.cpu_share) == (2e8, 0.002, {2: 0.5})


MISTAKES = [
    ("launcher: emulated", "launcher: needs the key cluster"),
    ("cluster: {hosts: 2}", "add launcher: emulated"),
    ("launcher: local\ncluster: {hosts: 2}", "add launcher: emulated"),
    ("hosts: [n0, n1]\ncluster: {hosts: 2}", "hosts: excludes cluster, which makes hosts of this machine"),
    (
        "hosts: [n0, n1]\ninclude: {workers: 2, cluster: {hosts: 2}}",
        "and the study uses real hosts (hosts, line 3); make two studies of it",
    ),
    ("hosts: {names: [n0], local_folder: scratch}", "write a whole path, as /scratch, or $TMPDIR"),
    ("launcher: emulated\ncluster: {}", "hosts"),
    ("hosts: [n0, n0]", "'n0' is listed 2 times; name each host once"),
    ("hosts: [n0, n0, n1, n1]", "hosts: {names: [n0, n1], workers_per_host: 2}"),
    ("hosts: 'n[0-3],n2'", "'n2' is listed 2 times"),
    ("hosts: {names: [n0, n1, n0]}", "'n0' is listed 2 times"),
    ("launcher: emulated\ncluster: {hosts: 0}", "the smallest is 1"),
    ("launcher: emulated\ncluster: {hosts: 2, bandwidth: 200}", "the smallest is 100000"),
    ("launcher: emulated\ncluster: {hosts: 2, bandwidth: 25MB/s}", "'25MB/s' is not a bit rate"),
    ("launcher: emulated\ncluster: {hosts: 2, delay: 1h}", "cluster.delay: a delay must be at most 10s, not 1h"),
    ("launcher: emulated\ncluster: {hosts: 2, delay: 5}", "cluster.delay: 5 has no unit; write 5us or 5ms"),
    ("launcher: emulated\ncluster: {hosts: 2, delay: '0.5'}", "cluster.delay: 0.5 has no unit; write 0.5us or 0.5ms"),
    ("launcher: emulated\ncluster: {hosts: 2, delay: soon}", "'soon' is not a duration"),
    ("launcher: emulated\ncluster: {hosts: 2, cpu_share: {2: 50%}}", "they are numbered from 0 to 1"),
    ("launcher: emulated\ncluster: {hosts: 2, host_bandwidth: {2: 1Gbit/s}}", "they are numbered from 0 to 1"),
    (
        "launcher: emulated\ncluster: {hosts: 2}\ninclude: {workers: 2, cluster: {hosts: 2, cpu_share: {2: 50%}}}",
        "they are numbered from 0 to 1",
    ),
    ("include: {workers: 2, cluster: {hosts: 2}}", "means something to the launcher 'emulated' only"),
    ("launcher: emulated\ncluster: {hosts: 2, host_bandwidth: {1: fast}}", "'fast' is not a bit rate"),
    ("launcher: emulated\ncluster: {hosts: 2, cpu_share: {first: 50%}}", "hosts are numbered from 0"),
    ("launcher: emulated\ncluster: {hosts: 2, cpu_share: {1: 200%}}", "the largest is 1"),
    ("launcher: emulated\ncluster: {hosts: 2, bandwith: 1Gbit/s}", "did you mean 'bandwidth'"),
]


@pytest.mark.parametrize(("text", "part"), MISTAKES)
def test_a_mistake_is_said_with_what_would_be_right(reading, text, part):
    with pytest.raises(StudyError) as caught:
        reading(text)
    assert part in str(caught.value)


def test_an_inclusion_may_have_hosts_of_its_own(reading):
    study = reading(
        "launcher: emulated\ncluster: {hosts: 2}\ninclude: {workers: 2, cluster: {hosts: 2, cpu_share: {1: 50%}}}"
    )
    assert (study.cluster.cpu_share, study.include[0].cluster.cpu_share) == ({}, {1: 0.5})


@pytest.mark.parametrize("key", ["cluster: {hosts: 2}", "hosts: [n0]", "slurm: {nodes: 2}"])
def test_an_unknown_launcher_is_the_only_mistake_of_a_study_with_hosts(reading, key):
    with pytest.raises(StudyError) as caught:
        reading(f"launcher: slrum\n{key}")
    assert len(caught.value.mistakes) == 1
