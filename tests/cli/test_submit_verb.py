"""``steptime submit --to kubernetes``: a manifest of the form of its kind, whose pods run the study as it was."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import ruamel.yaml
from PIL import Image
from program import PROGRAM

from kubernetes_schemas import KINDS, mistakes
from steptime.cli.app import run_program
from steptime.cli.kubernetes import PodJob, host_names, manifest_text, mpijob, name_of_job, trainjob

STUDY = "question: Is it fast?\nworkloads: lenet5\nframeworks: reference\nworkers: [1, 2]\ndevice: cpu\n"
TWO, ONE = ("slurm.nodes=2", "slurm.time=90m"), ("slurm.nodes=1",)
GPUS = ("device=cuda", "frameworks=pytorch", "slurm.gpus_per_node=a100:4")
OF_KIND = {"mpijob": TWO, "trainjob": ONE}
TEXTS = ["", "a\n  b", " a\nb", "a\n", "a\tb\nc", "…\n\x1b[31m", "- 'no': \"yes\" # it\n\n\n", "12", "a\r\nb", "\na"]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPTIME_CACHE", raising=False)
    (tmp_path / "race.yaml").write_text(STUDY)
    return tmp_path / "race.yaml"


def submitted(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert run_program(["submit", "race.yaml", "--to", "kubernetes", *words]) == 0
    text = capsys.readouterr().out
    assert "Never run on a cluster" in text
    return ruamel.yaml.YAML(typ="safe").load(text)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run_program(["submit", "race.yaml", *words]) == 2
    return capsys.readouterr().err


def command_of(manifest: dict) -> list[str]:
    spec = manifest["spec"]
    if manifest["kind"] == "TrainJob":
        return spec["trainer"]["command"]
    return spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]


@pytest.mark.parametrize("changes", [(), GPUS], ids=["cpu", "cuda"])
@pytest.mark.parametrize("kind", OF_KIND)
def test_a_manifest_has_the_form_of_its_kind(study, capsys, kind, changes):
    printed = submitted(capsys, *OF_KIND[kind], *changes)
    assert printed["kind"].lower() == kind
    assert mistakes(KINDS[kind]["schema"], printed) == []


@pytest.mark.parametrize("kind", OF_KIND)
def test_the_commands_of_a_launch_are_comments_of_the_manifest(study, capsys, kind):
    assert submitted(capsys, *OF_KIND[kind], "--dry-run") == submitted(capsys, *OF_KIND[kind])
    run_program(["submit", "race.yaml", "--to", "kubernetes", *OF_KIND[kind], "--dry-run"])
    said = capsys.readouterr().out
    assert ("ssh -o" in said, "start.py job.json" in said) == ((True, False) if kind == "mpijob" else (False, True))


@pytest.mark.parametrize("kind", OF_KIND)
def test_pods_run_the_study_as_it_was_submitted(study, capsys, tmp_path, kind):
    """The script of the pod is run for its plan alone, with the hostfile that an MPI operator leaves."""
    changes = ("slurm.gpus_per_node=0", "frameworks=reference", "--setup", "export ready=1")
    shell, option, script = command_of(submitted(capsys, *OF_KIND[kind], *changes))
    study.write_text("nothing: of this\n")
    (tmp_path / "hostfile").write_text("a.race.default.svc slots=1\nb.race.default.svc slots=1\n")
    assert script.startswith("export ready=1\nexec steptime run /dev/fd/3 ")
    script = script.replace(" steptime run ", f" {' '.join(map(str, PROGRAM))} run --dry-run --json ")
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HYDRA_HOST_FILE": str(tmp_path / "hostfile")}
    done = subprocess.run([shell, option, script], env=variables, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    launchers = {trial["launcher"] for trial in plan["trials"]}
    assert launchers == ({"allocation"} if kind == "mpijob" else {"local"})
    assert {trial["workers"] for trial in plan["trials"]} == {1, 2}


def test_every_host_has_a_machine_its_gpus_and_its_workers(study, capsys):
    spec = submitted(capsys, *TWO, *GPUS, "hosts.workers_per_host=2", "--image", "mine:2")["spec"]
    worker = spec["mpiReplicaSpecs"]["Worker"]
    pod = worker["template"]["spec"]
    (container,) = pod["containers"]
    assert (worker["replicas"], spec["slotsPerWorker"], container["image"]) == (2, 2, "mine:2")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    (rule,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert spec["runPolicy"]["activeDeadlineSeconds"] == 5400


def test_results_and_cache_lie_on_the_claim_that_all_pods_mount(study, capsys):
    spec = submitted(capsys, *TWO, "-o", "/shared/runs/race")["spec"]["mpiReplicaSpecs"]
    pods = [spec[role]["template"]["spec"] for role in ("Launcher", "Worker")]
    for pod in pods:
        (container,) = pod["containers"]
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/shared/runs", "/dev/shm"}  # noqa: S108
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    (launcher,) = pods[0]["containers"]
    assert launcher["env"] == [{"name": "STEPTIME_CACHE", "value": "/shared/runs/cache"}]
    assert " -o /shared/runs/race " in launcher["command"][-1]


def test_a_folder_beside_the_study_is_to_be_copied_into_the_claim(study, capsys):
    for name in ("a", "b"):
        (study.parent / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(study.parent / "photos" / name / "0.png")
    words = ["workloads={name: resnet50, dataset: ./photos, image: 32, batch_per_worker: 2}", "frameworks=pytorch"]
    assert run_program(["submit", "race.yaml", "--to", "kubernetes", *words, "workers=1"]) == 0
    done = capsys.readouterr()
    assert f"the study reads {study.parent}/photos: copy it to /steptime/photos in the pods" in done.err
    assert mistakes(KINDS["trainjob"]["schema"], ruamel.yaml.YAML(typ="safe").load(done.out)) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "slrum"), "unknown scheduler 'slrum'; did you mean 'slurm'?"),
        (("--to", "kubernetes", "--option", "x", "--requeue", "3"), "--option and --requeue: of Slurm alone"),
        (("--image", "mine:2"), "--image mine:2: of --to kubernetes"),
        (("--to", "kubernetes", "-o", "results"), "give a whole path, as /steptime/results"),
        (("--to", "kubernetes", "-o", "/results"), "give a whole path, as /steptime/results"),
        (("--to", "kubernetes", "hosts=[n0, n1]"), "n0, n1 are named; leave them out of hosts, and set slurm.nodes"),
    ],
)
def test_what_no_pod_can_have_is_refused_with_the_next_step(study, capsys, words, message):
    assert message in refused(capsys, *words)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", [trainjob, mpijob])
def test_yaml_gives_a_text_back_as_it_was(form, text):
    job = PodJob("race", ["bash", "-c", text], {"A": text}, [], hosts=2)
    assert ruamel.yaml.YAML(typ="safe").load(manifest_text(["a"], form(job))) == form(job)


@pytest.mark.parametrize("name", ["race", "2 Nodes", "__", "a" * 99, "Ünï-cödé", "x_y.z-"])
def test_a_name_of_a_study_becomes_one_that_kubernetes_allows(name):
    made = name_of_job(name)
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", made)
    assert max(map(len, host_names(PodJob(made, [], {}, [], hosts=100))[-1].split("."))) <= 63
