"""Hosts, addresses and keys that other programs take are named as what they are, with what a study has instead."""

import pytest

TOP = "workloads: lenet5\nframeworks: pytorch\nworkers: 2\nlauncher: mpi\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: hostfile", "'hostfile' is the name of a file and not of a host; a hostfile is written alone, as"),
        ("hosts: [./hosts.txt, n0]", "is the name of a file and not of a host; a hostfile is written alone"),
        ("hosts: [machinefile]", "is the name of a file and not of a host"),
        ("hosts: nodelist.txt", "is the name of a file and not of a host"),
        ("hosts: [node1:4, node2:4]", "write hosts: {names: [node1], workers_per_host: 4}"),
        ("hosts: 'server1:4,server2:4'", "write hosts: {names: [server1], workers_per_host: 4}"),
        ("hosts: [node1 slots=4]", "write hosts: {names: [node1], workers_per_host: 4}"),
        ("hosts: $SLURM_JOB_NODELIST", "a variable of a shell, which a study does not read"),
        ("hosts: ${PBS_NODEFILE}", "a variable of a shell, which a study does not read"),
    ],
)
def test_what_is_not_the_name_of_a_host_is_named(mistakes, text, said):
    (sentence,) = [each for each in mistakes(TOP + text) if "hosts" in each]

    assert sentence.startswith("race.yaml:5: hosts.names: ")
    assert said in sentence


@pytest.mark.parametrize("name", ["n1", "ubuntu@10.0.0.1", "gpu-01.cluster.local", "hosts1", "filer-7", "n[0-3]"])
def test_the_name_of_a_host_is_taken(read, name):
    assert read(TOP + f"hosts: ['{name}', other]").hosts.names[-1] == "other"


@pytest.mark.parametrize("key", ["dataset", "validation"])
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://my-bucket/pets", "copy it, as by aws s3 cp --recursive s3://my-bucket/pets ./pets, and name ./pets"),
        ("gs://bucket/a b/", "gcloud storage cp -r 'gs://bucket/a b/' ./a-b, and name ./a-b"),
        ("hdfs://host/pets", "hdfs dfs -get hdfs://host/pets ./pets"),
        ("https://example.org/pets.zip", "download and unpack it, and name ./pets-zip"),
    ],
)
def test_an_address_is_not_a_folder(mistakes, key, address, said):
    data = "" if key == "dataset" else "dataset: digits, "
    found = mistakes(f"workloads: {{name: lenet5, {data}{key}: '{address}'}}\nframeworks: pytorch")

    assert any(f"workloads.{key}: '{address}' is an address" in each and said in each for each in found)


def test_a_key_of_the_study_within_a_workload_is_named(mistakes):
    (sentence,) = mistakes("workloads: {name: lenet5, precision: fp16}\nframeworks: pytorch")

    assert "unknown key 'precision'" in sentence
    assert sentence.endswith("; the study itself has the key precision")


def test_a_container_that_begins_with_a_variable_is_named(mistakes):
    text = "workloads: lenet5\nframeworks: pytorch\nenvironments: {pytorch: {container: VAR=1 apptainer exec a.sif}}"

    assert any("begins with 'VAR=1', which sets a variable" in each for each in mistakes(text))
