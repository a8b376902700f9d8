"""The node of a job that a command is, where the user starts a launcher on each: members of one job share a folder.

Nothing is sent: what a command and its environment have of run id, master address and port, number of members, script
and place among the members is compared with what the first member noted in the results folder.
"""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from steptime.attached.user_command import script_of
from steptime.results.stored_record import StoredObject

if TYPE_CHECKING:
    from steptime.results.attached_files import AttachedHeader

_TOGETHER_S = 900.0
"""Members of a job start within this time of one another: launchers wait for the others about as long."""
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "run": ("rdzv-id",),
    "address": ("master-addr", "rdzv-endpoint", "main-process-ip"),
    "port": ("master-port", "main-process-port"),
    "world": ("nnodes", "num-machines", "num-nodes"),
    "member": ("node-rank", "machine-rank"),
}
"""Of launchers, by what they tell; with a dash or an underscore between the words."""
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "run": ("TORCHELASTIC_RUN_ID", "PET_RDZV_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE", "PMI_JOBID"),
    "address": ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"),
    "port": ("MASTER_PORT", "PET_MASTER_PORT"),
    "world": ("PET_NNODES", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "NNODES", "WORLD_SIZE"),
    "member": ("PET_NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "NODE_RANK", "RANK"),
}
"""The same of environments, the first that is set."""
_OF_NODES: Mapping[str, tuple[str, ...]] = {
    "world": ("PET_NNODES",),
    "member": ("PET_NODE_RANK", "SLURM_NODEID", "NODE_RANK"),
}
"""Of a launcher: the others around it may be those of a job that it is a step of."""
_ONE_HOST = re.compile(r"localhost|127\.|\[?::1|0\.0\.0\.0")
_WORLD = re.compile(r"(?:\d+:)?(\d{1,6})")


class JobIdentity(StoredObject):
    """What the members of one job have in common, each a command of its own, as far as they know it."""

    run: str | None
    address: str | None
    """Of the first member, where others can reach it."""
    port: str | None
    world: int
    """How many members there are, or at most are."""
    script: list[str]
    """With its arguments."""


@dataclass(frozen=True)
class JobMember:
    """A command as a member of a job of several."""

    job: JobIdentity
    member: str
    """Its node, or its rank where each rank is a command of its own; the name of its host without either."""

    def to_json(self) -> dict[str, Any]:
        """Return what the first member notes for the others."""
        return {"job": self.job.model_dump(mode="json"), "member": self.member}

    def belongs_to(self, header: "AttachedHeader", now: datetime) -> bool:
        """Say whether the run of a header is that of this job: it goes on, began a short time ago, and is not its own.

        What either does not know is not compared; of run id, address and port one must be known to both.
        """
        if header.job is None or header.end_ns is not None or header.member == self.member:
            return False
        first = JobIdentity.model_validate(header.job)
        if abs((now - datetime.fromisoformat(header.started_at)).total_seconds()) > _TOGETHER_S:
            return False
        pairs = [(getattr(first, name), getattr(self.job, name)) for name in ("run", "address", "port")]
        known = [(one, other) for one, other in pairs if one is not None and other is not None]
        same = (first.world, first.script) == (self.job.world, self.job.script)
        return same and bool(known) and all(one == other for one, other in known)


def job_member(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> JobMember | None:
    """Return which member of which job a command is; None if it is a whole job, as far as can be told."""
    index, script = script_of(words)
    facts = _facts(words[:index], environment)
    world = _WORLD.fullmatch(facts["world"] or "")
    if world is None or int(world[1]) < 2:  # noqa: PLR2004 - one is the whole job
        return None
    address, _, port = (facts["address"] or "").partition(":")
    run = None if facts["run"] == "none" else facts["run"]
    if run is not None and run == environment.get("SLURM_JOB_ID"):
        run += f".{environment.get('SLURM_STEP_ID', '')}"
    identity = JobIdentity(
        run=run,
        address=address if address and not _ONE_HOST.match(address) else None,
        port=facts["port"] or port or None,
        world=int(world[1]),
        script=[script, *words[index + 1 :]],
    )
    return JobMember(identity, facts["member"] or socket.gethostname())


def _facts(launcher: Sequence[str], environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return what the options of a launcher tell of its job, and for the rest the environment."""
    facts = {name: _option(launcher, options) for name, options in _OPTIONS.items()}
    variables = {**_VARIABLES, **(_OF_NODES if _is_launcher_of_all(launcher) else {})}
    return {name: value or _variable(environment, variables[name]) for name, value in facts.items()}


def _option(words: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value of the first of some options, as ``--node-rank 1``, ``--node_rank=1``; None without any."""
    for index, word in enumerate(words):
        name, sign, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name.replace("_", "-") in names:
            return value if sign else next(iter(words[index + 1 : index + 2]), None)
    return None


def _is_launcher_of_all(words: Sequence[str]) -> bool:
    """Say whether a command begins processes by a launcher, so that variables around it are not its own rank."""
    launchers = ("torchrun", "torch.distributed", "accelerate", "deepspeed", "horovodrun", "srun", "mpirun", "mpiexec")
    return any(word.rpartition("/")[2].startswith(launchers) for word in words)


def _variable(environment: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)
