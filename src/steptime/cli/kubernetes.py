"""Manifests for Kubernetes: pods that mount folders of a volume claim and run a command.

A TrainJob of Kubeflow Trainer runs one command in every pod. An MPIJob of Kubeflow's MPI operator has a pod that
runs the command, and hosts that it reaches by ssh: a TrainJob for MPI would give these the image of its runtime.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

IMAGE = "registry.example/train:1"
"""A place for the image that a user sets."""
NEVER_RUN = "Never run on a cluster."
_CLAIM = "steptime"
_MEMORY = "shared-memory"
_LONGEST_NAME = 40
"""Of 63 characters, for what an operator appends."""
_WIDTH = 1 << 16
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Mount:
    """A folder of the volume claim, in every pod."""

    path: str
    """In the pods."""
    below: str | None = None
    """In the claim; None for all of it."""
    read_only: bool = False

    def to_json(self) -> dict[str, Any]:
        """Its form in a container."""
        form: dict[str, Any] = {"name": _CLAIM, "mountPath": _text(self.path)}
        if self.below is not None:
            form["subPath"] = _text(self.below)
        return {**form, "readOnly": True} if self.read_only else form


@dataclass(frozen=True)
class PodJob:
    """What pods are to run."""

    name: str
    command: Sequence[str]
    variables: Mapping[str, str]
    mounts: Sequence[Mount]
    image: str = IMAGE
    hosts: int = 1
    """Pods that train."""
    workers_per_host: int = 1
    gpus_per_host: int = 0
    limit_s: int | None = None
    """After which Kubernetes ends the job; None for never."""
    large_shared_memory: bool = False
    """Whether /dev/shm is to have more than the 64 MiB of a container."""

    @property
    def variables_form(self) -> list[dict[str, Any]]:
        """The variables, as a container has them."""
        return [{"name": name, "value": _text(value)} for name, value in self.variables.items()]

    @property
    def mounts_form(self) -> list[dict[str, Any]]:
        """What is mounted, as a container has it."""
        memory = [{"name": _MEMORY, "mountPath": "/dev/shm"}] if self.large_shared_memory else []  # noqa: S108 - in a pod
        return [*(mount.to_json() for mount in self.mounts), *memory]

    @property
    def volumes_form(self) -> list[dict[str, Any]]:
        """What the mounts are of, as a pod has it."""
        claim = {"name": _CLAIM, "persistentVolumeClaim": {"claimName": _CLAIM}}
        return [claim, *([{"name": _MEMORY, "emptyDir": {"medium": "Memory"}}] if self.large_shared_memory else [])]

    @property
    def resources_form(self) -> dict[str, Any]:
        """What each pod that trains is given."""
        return {"limits": {"nvidia.com/gpu": self.gpus_per_host}} if self.gpus_per_host else {}


def name_of_job(text: str) -> str:
    """Return a name that Kubernetes allows (RFC 1035): small letters, digits and dashes, a letter first."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (name if name[:1].isalpha() else f"study-{name}")[:_LONGEST_NAME].strip("-")


def host_names(job: PodJob) -> list[str]:
    """Return the names by which the pod of an MPIJob reaches its hosts, without the namespace."""
    return [f"{job.name}-worker-{index}.{job.name}" for index in range(job.hosts)]


def trainjob(job: PodJob) -> Manifest:
    """Return a TrainJob (v1alpha1, of Kubeflow Trainer 2.3) whose pods run the command."""
    container = {"name": "node", "volumeMounts": job.mounts_form}
    pod = {"volumes": job.volumes_form, "containers": [container]}
    patched = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
    trainer: Manifest = {
        "numNodes": job.hosts,
        "image": job.image,
        "command": _command(job.command),
        "env": job.variables_form,
    }
    if job.resources_form:
        trainer["resourcesPerNode"] = job.resources_form
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name},
        "spec": {
            "runtimeRef": runtime,
            **({"activeDeadlineSeconds": job.limit_s} if job.limit_s else {}),
            "trainer": trainer,
            "runtimePatches": [
                {"manager": "steptime.example/mounts", "trainingRuntimeSpec": {"template": {"spec": patched}}}
            ],
        },
    }


def mpijob(job: PodJob) -> Manifest:
    """Return an MPIJob (v2beta1, of Kubeflow's MPI operator) whose launcher runs the command.

    The command finds the hosts in the operator's hostfile. Each host has a machine for itself.
    """
    alone = {"training.kubeflow.org/job-name": job.name, "training.kubeflow.org/job-role": "worker"}
    apart = [{"labelSelector": {"matchLabels": alone}, "topologyKey": "kubernetes.io/hostname"}]
    common = {"image": job.image, "volumeMounts": job.mounts_form}
    launcher = {**common, "name": "launcher", "command": _command(job.command), "env": job.variables_form}
    worker = {**common, "name": "worker", **({"resources": job.resources_form} if job.resources_form else {})}

    def pods(count: int, container: Manifest, **more: Any) -> Manifest:  # noqa: ANN401 - parts of a manifest
        spec = {**more, "volumes": job.volumes_form, "containers": [container]}
        return {"replicas": count, "template": {"spec": spec}}

    policy: Manifest = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    if job.limit_s:
        policy["activeDeadlineSeconds"] = job.limit_s
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": job.name},
        "spec": {
            "slotsPerWorker": job.workers_per_host,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": policy,
            "mpiReplicaSpecs": {
                "Launcher": pods(1, launcher),
                "Worker": pods(
                    job.hosts,
                    worker,
                    affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
                ),
            },
        },
    }


def manifest_text(comments: Sequence[str], manifest: Manifest) -> str:
    """Return a manifest as YAML below comments, a line each."""
    writer, written = YAML(), io.StringIO()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = _WIDTH
    writer.representer.ignore_aliases = lambda *_: True
    writer.dump(manifest, written)
    return "".join(f"# {line}\n" for line in comments) + written.getvalue().removesuffix("\n")


def _command(words: Sequence[str]) -> list[str]:
    return [_text(word) for word in words]


def _text(value: str) -> str:
    """Return a text that YAML reads as it is: several plain lines as a block, whatever else in quotes."""
    lines = value.split("\n")
    if len(lines) > 1 and lines[0] and value.isascii() and all(line.isprintable() for line in lines):
        block: str = LiteralScalarString(value)
        return block
    quoted: str = DoubleQuotedScalarString(value)
    return quoted
