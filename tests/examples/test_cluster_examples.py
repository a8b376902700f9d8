"""Examples for clusters: manifests have the form of their kinds, and their variables measure what containers start."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import ruamel.yaml
from containers import container, missing_bubblewrap
from launching import interpreter_for
from program import PROGRAM

from kubernetes_schemas import KINDS, mistakes
from steptime.attached.summary import attached_run
from steptime.cli.app import run_program
from steptime.launchers.base import free_ports
from steptime.results.store import Store

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
LAUNCHERS = Path(__file__).parents[1] / "launchers"
EXAMPLES = ("trainjob", "jobset")
IN_PODS = "/steptime/runs"
"""The results folder as pods see it."""
SHOW = "import os, sitecustomize as hook; print(hook.__file__, os.access(hook.__file__, os.W_OK)); raise SystemExit(7)"


def manifest(name: str) -> dict:
    return ruamel.yaml.YAML(typ="safe").load(CLUSTER / f"{name}.yaml")


def node_of(name: str) -> tuple[dict[str, str], dict[str, dict]]:
    """Return the variables and the mounts, by their paths, of the container that trains."""
    spec = manifest(name)["spec"]
    trainer = spec.get("trainer")
    if trainer:
        spec = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (node,) = pod["containers"]
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in node["volumeMounts"]}
    variables = {item["name"]: item["value"] for item in (trainer or node)["env"]}
    return variables, {mount["mountPath"]: mount for mount in node["volumeMounts"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_manifest_has_the_form_of_its_kind(name):
    assert mistakes(KINDS[name]["schema"], manifest(name)) == []


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        (lambda spec: spec["trainer"].update(numNodes="2"), ".spec.trainer.numNodes: not of type integer"),
        (lambda spec: spec["trainer"].update(environment=[]), ".spec.trainer.environment: unknown"),
        (lambda spec: spec["trainer"]["env"][0].pop("name"), ".spec.trainer.env[0].name: missing"),
        (lambda spec: spec["trainer"].update(numNodes=-1), ".spec.trainer.numNodes: -1 is too small"),
        (lambda spec: spec["runtimePatches"][0].update(manager=""), ".spec.runtimePatches[0].manager: has 0"),
    ],
)
def test_a_mistake_in_a_manifest_is_seen(change, mistake):
    changed = manifest("trainjob")
    change(changed["spec"])
    assert mistakes(KINDS["trainjob"]["schema"], changed) == [mistake]


@pytest.mark.parametrize("name", KINDS)
def test_a_schema_names_its_source_and_version(name):
    assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+/blob/[0-9a-f]{40}/[\w./-]+\.yaml", KINDS[name]["source"])
    assert KINDS[name]["version"]


@pytest.mark.parametrize("name", ["trainjob.yaml", "jobset.yaml", "run-in-docker.sh", "Dockerfile"])
def test_what_never_ran_on_a_cluster_is_marked_so(name):
    assert re.search(r"[Nn]ever (built or )?run on a cluster", (CLUSTER / name).read_text())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_manifest_has_the_variables_that_attach_prints_and_a_hook_that_is_mounted_read_only(name, tmp_path, capsys):
    assert run_program(["attach", "--environment", "--format", "json", "-o", str(tmp_path / "runs")]) == 0
    printed = json.loads(capsys.readouterr().out)
    variables, mounts = node_of(name)
    assert {key: variables[key] for key in printed} == {
        key: value.replace(str(tmp_path), "/steptime") for key, value in printed.items()
    }
    assert mounts[variables["PYTHONPATH"]]["readOnly"]
    assert mounts[variables["PYTHONPATH"]]["subPath"] == "runs/hook"
    assert mounts[variables["STEPTIME_ATTACH"]]["subPath"] == "runs/attached"


def test_a_manifest_that_attach_prints_has_the_form_of_its_kind_and_runs_the_command(tmp_path, capsys):
    command = ["torchrun", "--nproc-per-node", "8", "a script.py"]
    words = ["attach", "--environment", "-o", str(tmp_path / "runs"), "--format"]
    assert run_program([*words, "json"]) == 0
    variables = json.loads(capsys.readouterr().out)
    assert run_program([*words[:3], str(tmp_path / "other"), "--format", "trainjob", "--", *command]) == 0
    text = capsys.readouterr().out
    printed = ruamel.yaml.YAML(typ="safe").load(text)
    spec = printed["spec"]
    (node,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    (container_of_node,) = node["template"]["spec"]["template"]["spec"]["containers"]
    hook, records = container_of_node["volumeMounts"]
    assert mistakes(KINDS["trainjob"]["schema"], printed) == []
    assert spec["trainer"]["command"] == command
    assert {item["name"]: item["value"].replace("/other/", "/runs/") for item in spec["trainer"]["env"]} == variables
    assert hook["readOnly"]
    assert not records.get("readOnly")
    assert "Never run on a cluster" in text


def require_bubblewrap() -> None:
    if reason := missing_bubblewrap():
        pytest.skip(reason)


@pytest.mark.costly
@pytest.mark.framework("pytorch")
@pytest.mark.needs("containers")
def test_two_pods_with_the_variables_of_a_manifest_alone_are_measured_and_the_slow_one_is_found(tmp_path, capsys):
    require_bubblewrap()
    runs = tmp_path / "runs"
    assert run_program(["attach", "--environment", "-o", str(runs)]) == 0
    capsys.readouterr()
    variables, mounts = node_of("jobset")
    volumes = [
        f"{tmp_path / mount['subPath']}:{path}{':ro' if mount.get('readOnly') else ''}"
        for path, mount in mounts.items()
    ]
    (port,) = map(str, free_ports(1))
    joining = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    pods = []
    for rank in range(2):
        inside = container(f"pod-{rank}", {**variables, **joining, "RANK": str(rank)}, volumes)
        command = [*inside, str(interpreter_for("pytorch")), str(LAUNCHERS / "slow_rank.py")]
        pods.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    errors = [pod.communicate(timeout=200)[1] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], errors
    found = attached_run(*Store.open(runs).attached())
    assert [(rank.rank, rank.host) for rank in found.ranks] == [(0, "pod-0"), (1, "pod-1")]
    (forward,) = [part for part in found.parts if part.name == "forward"]
    assert forward.ranks_s[1] - forward.ranks_s[0] > 0.03
    assert found.waited_for.rank in {1, None}  # a busy machine delays the other, too


@pytest.mark.costly
@pytest.mark.needs("containers")
def test_a_container_has_the_hook_read_only_and_its_exit_code_is_kept(tmp_path):
    require_bubblewrap()
    paths = [str(LAUNCHERS), str(LAUNCHERS.parents[1] / ".ci")]
    lines = [f"#!{sys.executable}", "import sys", f"sys.path[:0] = {paths!r}"]
    docker = "\n".join([*lines, "import containers", "containers.run_as_docker(sys.argv)"])
    for name, text in (("docker", docker), ("steptime", f'#!/bin/sh\nexec {shlex.join(map(str, PROGRAM))} "$@"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    done = subprocess.run(
        [str(CLUSTER / "run-in-docker.sh"), "an-image", sys.executable, "-c", SHOW],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 7, done.stderr
    assert re.fullmatch(rf"{tmp_path}/steptime-results/[\d-]+/hook/sitecustomize.py False\n", done.stdout)
    assert "no step was seen" in done.stderr
