"""The hosts that a study names: emulated ones, those of a real cluster, and those that Slurm is asked for."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from steptime.errors import FileError
from steptime.file_name import HOST_NAME
from steptime.study.host_lists import MOST_HOSTS, expanded_hosts
from steptime.study.hostfile import common_slots, is_hostfile, read_hostfile
from steptime.study.quantities import BitRate, CpuShare, Delay, JobTime, OneOrMany, ProcessCount, Strict, by_number


class ClusterChoice(Strict):
    """The hosts that the launcher `emulated` makes of this machine."""

    hosts: ProcessCount
    """For workers, at most: a trial has as many as its workers fill, and one more for each server of its own."""
    workers_per_host: ProcessCount = 1
    """Workers fill one host after the other."""
    bandwidth: BitRate | None = None
    """Of every host's link, in each direction; not limited by default."""
    host_bandwidth: Annotated[dict[int, BitRate], BeforeValidator(by_number)] = {}
    """For hosts of workers with another bandwidth, from 0."""
    delay: Delay = 0.0
    """From one host to another, one way, on top of the link's own."""
    cpu_share: Annotated[dict[int, CpuShare], BeforeValidator(by_number)] = {}
    """For slow hosts of workers, from 0: the share of their cores that they may use."""


HostName = Annotated[
    str,
    Field(
        pattern=HOST_NAME,
        max_length=253,
        json_schema_extra={"pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.@,\[\]-]*$|/"},  # as written: n[0-3,7], ./hostfile
    ),
]
"""Nothing that a program could take for an option or a command."""
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,@:+-]*$", max_length=100)]


def _on_each_host(path: str) -> str:
    if re.fullmatch(r"(/|\$[A-Za-z_])[A-Za-z0-9_./@+-]*", path) is None:
        message = f"{path!r} is not a place on each host; write a whole path, as /scratch, or $TMPDIR"
        raise ValueError(message)
    return path


_FILE_OF_HOSTS = re.compile(
    r".*/.*|.*\.(txt|cfg|conf|ini|ya?ml|json|list)|((open)?mpi|my|slurm|pbs)?[-_]?(host|machine|node|server)s?[-_]?"
    r"(file|list)s?",
    re.IGNORECASE,
)
_WITH_WORKERS = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.@-]*)(:| +slots *= *| *\* *)([0-9]+).*")


def _no_host(text: str) -> str:
    """Return what a text is that is meant for hosts and names none, and how to write them; empty for a name."""
    if text.startswith("$"):
        return "a variable of a shell, which a study does not read; in an allocation leave names out, else write them"
    if split := _WITH_WORKERS.fullmatch(text.strip()):
        return (
            f"a host with a number of workers, as in a hostfile; write hosts: {{names: [{split[1]}], workers_per_host: "
            f"{split[3]}}}"
        )
    if _FILE_OF_HOSTS.fullmatch(text.strip()):
        path = text.strip() if is_hostfile(text) else f"./{text.strip()}"
        return f"the name of a file and not of a host; a hostfile is written alone, as hosts: {path}"
    return ""


def _expanded(value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
    """Return a list of hosts whose ranges are written out; what is not text stays, for the message of its own."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) for each in values):
        return value
    for each in values:
        if other := _no_host(each):
            message = f"{each!r} is {other}"
            raise ValueError(message)
    names = [name for each in values for name in expanded_hosts(each)]
    for name, count in Counter(names).items():
        if count > 1:
            listed = ", ".join(dict.fromkeys(names))
            message = (
                f"{name!r} is listed {count} times; name each host once, and how many workers each of them has: hosts: "
                f"{{names: [{listed}], workers_per_host: {count}}}"
            )
            raise ValueError(message)
    return names


class HostsChoice(Strict):
    """The hosts of a real cluster, for the launchers `ssh`, `slurm`, `mpi`, `ray` and `allocation`."""

    names: Annotated[OneOrMany[HostName], BeforeValidator(_expanded), Field(max_length=MOST_HOSTS)] = []
    """As ssh or Slurm knows them, `n[0-3,7]`, or a hostfile, `./FILE`; by default those of the allocation."""
    workers_per_host: ProcessCount = 1
    """They fill one host after the other; by default the slots of a hostfile or allocation."""
    gpus_per_host: Annotated[int, Field(ge=0, le=64)] | None = None
    """That every host must have; by default `slurm.gpus_per_node`, else as the probe finds."""
    interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:-]*$", max_length=15)] | None = None
    """By which hosts talk to each other, as `ib0`; by default the one that leads to the first host."""
    local_folder: Annotated[str, Field(max_length=200), AfterValidator(_on_each_host)] | None = None
    """On each host's own disk, as `/local/scratch` or `$TMPDIR`: environments are copied there before their first
    use."""
    ray_address: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?$")] | None = None
    """Of a Ray cluster, `HOST:PORT`; by default `$RAY_ADDRESS`, else this host's cluster."""

    @model_validator(mode="before")
    @classmethod
    def _with_hostfile(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        """Replace the path of a hostfile by the hosts and slots that it has."""
        path = hostfile_of(value)
        if path is None:
            return value
        try:
            slots = read_hostfile(Path(path).expanduser())
        except FileError as error:
            raise ValueError(str(error)) from error
        even = {} if "workers_per_host" in value else {"workers_per_host": common_slots(slots, path)}
        return {**value, **even, "names": list(slots)}


def hostfile_of(hosts: object) -> str | None:
    """Return the path of the hostfile that stands for the names of a study's hosts; None for names."""
    names = hosts.get("names") if isinstance(hosts, dict) else hosts
    if isinstance(names, list) and len(names) == 1:
        names = names[0]
    return names if isinstance(names, str) and is_hostfile(names) and "," not in names else None


def _number_as_text(value: object) -> object:
    """Return a number, which YAML makes of ``4``, as the text that Slurm takes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class SlurmChoice(Strict):
    """The allocation that `steptime submit` asks Slurm for."""

    nodes: ProcessCount = 1
    """Whole nodes."""
    time: JobTime | None = None
    """Limit of the job, also as sbatch takes it: `90` (minutes), `1:30:00`, `1-12`; by default the partition's."""
    partition: Word | None = None
    """By default Slurm's."""
    account: Word | None = None
    """By default yours."""
    gpus_per_node: Annotated[Word, BeforeValidator(_number_as_text, json_schema_input_type=Word | int)] | None = None
    """As Slurm's option: `4`, or `a100:4`. By default `hosts.gpus_per_host`."""

    @property
    def gpu_count(self) -> int | None:
        """How many GPUs of all kinds ``gpus_per_node`` asks for on each node; None if it names no number."""
        counts = [kind.rpartition(":")[2] for kind in (self.gpus_per_node or "").split(",")]
        return sum(map(int, counts)) if all(count.isdecimal() for count in counts) else None
