"""``python -m steptime.launchers.hosts.ray_line``: reaches the hosts of a Ray cluster, as ssh or srun reach others.

``nodes ADDRESS`` prints the cluster's address and its living nodes as JSON. ``each ADDRESS HOST,… PROGRAM…`` runs a
program on every host, with the host's index behind it, and joins their standard streams to its own: what it reads goes
to all, and lines that they print come out whole. ``one ADDRESS HOST PROGRAM…`` runs a program on one host and ends
with its exit code.

It is a driver of Ray, in a process of its own: Ray's threads and memory are never those of steptime, and Ray ends the
actors of a driver that is killed. A placement group (STRICT_SPREAD) holds all processors and GPUs of every host while a
launch runs. Ray sends the actors' code along, so that the cluster's Python needs no steptime.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

NO_CLUSTER, LOST = 3, 255
"""Exit codes: the cluster cannot be used, and a host was lost, as of ssh."""
_CONNECT_S = 3.0
_PLACED_S = 60.0
"""How long other programs of the cluster may hold a processor or GPU of a host."""
_MOST_BYTES = 1 << 16
_VERSIONS = re.compile(r"Ray: *(\S+)\s+Python: *(\S+)")


class UnusableCluster(Exception):  # noqa: N818 - of one process, which ends with its sentence
    """Why no program can be run on the cluster, and the next step."""


class FarProgram:
    """A program on a host of the cluster, as an actor there; each group of its methods has a thread of its own."""

    def start(self, argv: Sequence[str]) -> int:
        """Start the program as the user who started Ray would; return its niceness."""
        # Ray gives its workers a niceness of 15, no GPU and one thread, which is for its own tasks.
        environment = os.environ.copy()
        with contextlib.suppress(OSError), open(f"/proc/{os.getppid()}/environ", "rb") as file:  # noqa: PTH123
            pairs = (pair.partition("=") for pair in file.read().decode(errors="surrogateescape").split("\0"))
            environment = {name: value for name, _, value in pairs if name} or environment
        self._program = subprocess.Popen(
            argv,
            env={name: value for name, value in environment.items() if not _is_of_ray(name, value)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # only root may take less, and RLIMIT_NICE
            os.setpriority(os.PRIO_PROCESS, self._program.pid, 0)
        return os.getpriority(os.PRIO_PROCESS, self._program.pid)

    def write(self, data: bytes) -> None:
        """Give the program ``data``, or the end of its input where that is empty."""
        assert self._program.stdin is not None  # noqa: S101 - it was asked for
        with contextlib.suppress(OSError, ValueError):  # it has ended, which its output shows
            if data:
                self._program.stdin.write(data)
            else:
                self._program.stdin.close()

    def read(self) -> bytes:
        """Return what the program has printed, once it has; nothing at its end."""
        assert self._program.stdout is not None  # noqa: S101 - it was asked for
        return os.read(self._program.stdout.fileno(), _MOST_BYTES)

    def read_errors(self) -> bytes:
        """Return likewise what it wrote on standard error."""
        assert self._program.stderr is not None  # noqa: S101 - it was asked for
        return os.read(self._program.stderr.fileno(), _MOST_BYTES)

    def exit_code(self) -> int:
        """Wait for the program, and return its exit code."""
        return self._program.wait()


def _is_of_ray(name: str, value: str) -> bool:
    """Return whether a variable is one that Ray has set for itself, such as the allocator of its raylets."""
    return name.startswith("RAY_") or (name == "LD_PRELOAD" and "/ray/core/" in value)


_GROUPS = {"write": "input", "read": "output", "read_errors": "errors"}


def remote_program(ray: Any) -> Any:  # noqa: ANN401 - Ray has no types here
    """Return the class of actors; input keeps its order, since each group has one thread."""
    methods = {name: ray.method(concurrency_group=group)(getattr(FarProgram, name)) for name, group in _GROUPS.items()}
    return ray.remote(concurrency_groups=dict.fromkeys(_GROUPS.values(), 1))(type("Program", (FarProgram,), methods))


class Output:
    """What programs print, joined: lines are written whole."""

    def __init__(self, file: int) -> None:
        """Begin; ``file`` is what is written to."""
        self._file = file
        self._writing = threading.Lock()

    def copy(self, pieces: Iterator[bytes]) -> None:
        """Write the lines of one program; the last may lack its end."""
        unread = b""
        for piece in pieces:
            *lines, unread = (unread + piece).split(b"\n")
            self.write(b"".join(line + b"\n" for line in lines))
        self.write(unread)

    def write(self, data: bytes) -> None:
        """Write ``data`` at once; who reads may have gone."""
        with self._writing, contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._file, data) :]


def listens(node: dict[str, Any]) -> bool:
    """Return whether a node's raylet takes connections: Ray itself notices its death after many seconds."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), _CONNECT_S),
    ):
        return True
    return False


def living_nodes(nodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes that run programs, one of each address: those with a processor whose raylet answers."""
    alive = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    alive.sort(key=lambda node: [part.zfill(3) for part in node["NodeManagerAddress"].split(".")])
    usable = list({node["NodeManagerAddress"]: node for node in alive}.values())
    if not usable:
        return []
    with ThreadPoolExecutor(min(64, len(usable))) as pool:
        return [node for node, answers in zip(usable, pool.map(listens, usable), strict=True) if answers]


def connected(address: str) -> Any:  # noqa: ANN401 - Ray has no types here
    """Return Ray, connected to a cluster.

    Raises UnusableCluster.
    """
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # else Ray starts a cluster where a call finds none
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = f"{sys.prefix} has no Ray ({error}): pip install 'steptime[ray]' there"
        raise UnusableCluster(message) from error
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        except OSError as error:
            raise UnusableCluster(_no_cluster(address, error.strerror or str(error))) from error
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise UnusableCluster(_why_not_connected(address, str(error), ray.__version__)) from error
    return ray


def _no_cluster(address: str, reason: str) -> str:
    where = "on this host or at $RAY_ADDRESS" if address == "auto" else f"at {address}"
    return (
        f"no Ray cluster is reached {where} ({reason}): start it (ray start --head), run steptime on one of its nodes, "
        "and set hosts.ray_address to HOST:PORT, which `ray start` has printed"
    )


def _why_not_connected(address: str, reason: str, own: str) -> str:
    versions = _VERSIONS.findall(reason)
    if len(versions) > 1 and versions[0] != versions[1]:
        (ray, python), (_, own_python) = versions[:2]
        return (
            f"the Ray cluster has Ray {ray} with Python {python}, and steptime runs with Ray {own} and Python "
            f"{own_python}: install steptime with Python {python} and 'ray=={ray}'"
        )
    return _no_cluster(address, " ".join(reason.split())[:300])


class Programs:
    """A program on each of some hosts of a cluster, whose streams are joined to those of this process."""

    def __init__(self, ray: Any, hosts: Sequence[str]) -> None:  # noqa: ANN401 - Ray has no types here
        """Find the hosts; raises UnusableCluster where one is missing."""
        self._ray = ray
        self._hosts = hosts
        known = {node["NodeManagerAddress"]: node for node in living_nodes(ray.nodes())}
        if missing := [host for host in hosts if host not in known]:
            message = f"{', '.join(missing)}: no living node of the Ray cluster, which has {', '.join(known) or 'none'}"
            raise UnusableCluster(message)
        self._nodes = [known[host] for host in hosts]
        self._actors: list[Any] = []
        self._has_ended = False
        self._calling = threading.Lock()

    def start(self, program: Sequence[str], *, spread: bool) -> None:
        """Start a program on all hosts.

        Args:
            program: its words.
            spread: whether the hosts are held together for it, and each gets its index as the last word.

        Raises UnusableCluster where a host is not free, or lacks the program.
        """
        kind = remote_program(self._ray)
        options = self._places() if spread else [self._place(node) for node in self._nodes]
        self._actors = [kind.options(**each).remote() for each in options]
        started = [
            actor.start.remote([*program, str(index)] if spread else list(program))
            for index, actor in enumerate(self._actors)
        ]
        for host, answer in zip(self._hosts, started, strict=True):
            try:
                self._ray.get(answer, timeout=_PLACED_S)
            except Exception as error:
                message = f"{host}: Ray could not start {program[0]} there: {_first_words(error)}"
                raise UnusableCluster(message) from error

    def _place(self, node: dict[str, Any]) -> dict[str, Any]:
        return {"num_cpus": 0, "resources": {f"node:{node['NodeManagerAddress']}": 0.001}}

    def _places(self) -> list[dict[str, Any]]:
        """Return for each actor that it takes all processors and GPUs of its host, where nothing else shall run."""
        from ray.util.placement_group import placement_group  # noqa: PLC0415 - an extra
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415 - likewise

        held = [{kind: node["Resources"].get(kind, 0) for kind in ("CPU", "GPU")} for node in self._nodes]
        bundles = [
            {f"node:{host}": 0.001, **{kind: count for kind, count in own.items() if count}}
            for host, own in zip(self._hosts, held, strict=True)
        ]
        group = placement_group(bundles, strategy="STRICT_SPREAD")
        if not group.wait(_PLACED_S):
            kinds = "processors and GPUs" if any(own["GPU"] for own in held) else "processors"
            message = (
                f"within {_PLACED_S:g} s Ray did not have all {kinds} of {', '.join(self._hosts)} free: end other "
                "programs of the cluster (ray status), or name other hosts"
            )
            raise UnusableCluster(message)
        return [
            {
                "num_cpus": own["CPU"],
                "num_gpus": own["GPU"],
                "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            }
            for index, own in enumerate(held)
        ]

    def join(self, output: Output, errors: Output, lost: Callable[[int, str], None]) -> int:
        """Pass everything on until all programs have ended; return the largest exit code.

        Args:
            output: takes what they print.
            errors: takes what they write on standard error.
            lost: is called with the index of a host whose actor has died, and the reason.
        """
        codes = [LOST] * len(self._actors)

        def follow(index: int, method: str, into: Output) -> None:
            actor = self._actors[index]
            try:
                into.copy(iter(lambda: self._ray.get(getattr(actor, method).remote()), b""))
                if method == "read":
                    codes[index] = abs(self._ray.get(actor.exit_code.remote()))
            except self._ray.exceptions.RayError as error:
                if method == "read":
                    lost(index, self._why_lost(index, error))

        threading.Thread(target=self._pass_input, daemon=True).start()
        threads = [
            threading.Thread(target=follow, args=[index, method, into], daemon=True)
            for index in range(len(self._actors))
            for method, into in (("read", output), ("read_errors", errors))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._calling:
            self._has_ended = True
        return max(codes)

    def _pass_input(self) -> None:
        while True:
            data = os.read(0, _MOST_BYTES)
            with self._calling:
                if self._has_ended:  # a call behind the end of the connection would make Ray start a cluster of its own
                    return
                for actor in self._actors:
                    actor.write.remote(data)
            if not data:
                return

    def _why_lost(self, index: int, error: Exception) -> str:
        part = "Ray's actor" if listens(self._nodes[index]) else "the raylet"
        return f"{part} on {self._hosts[index]} has died ({_first_words(error)})"


def _first_words(error: Exception) -> str:
    """Return the sentence of a Ray error that names the cause; the rest are identifiers and a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1].partition(". ")[0] if lines else type(error).__name__)[:200]


def main(arguments: Sequence[str]) -> int:
    """Run one of the verbs; return the exit code."""
    own_output = os.dup(1)
    os.dup2(2, 1)  # so that nothing that Ray prints is taken for a message
    verb, address, *rest = arguments
    output, errors = Output(own_output), Output(2)
    try:
        ray = connected(address)
        if verb == "nodes":
            found = [
                {"address": node["NodeManagerAddress"], "name": node["NodeManagerHostname"]}
                for node in living_nodes(ray.nodes())
            ]
            output.write(json.dumps({"cluster": ray.get_runtime_context().gcs_address, "nodes": found}).encode())
            return 0
        programs = Programs(ray, rest[0].split(","))
        programs.start(rest[1:], spread=verb == "each")
    except UnusableCluster as error:
        errors.write(f"{error}\n".encode())
        return NO_CLUSTER

    def lost(host: int, reason: str) -> None:
        if verb == "each":
            output.write(json.dumps({"host": host, "lost": reason}).encode() + b"\n")
        else:
            errors.write(f"{reason}\n".encode())

    return programs.join(output, errors, lost)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
