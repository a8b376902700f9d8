"""A cluster for tests: nodes with a real Slurm and a real sshd, made of namespaces of this machine.

Each node has a network, a host name, a process table and a mount table of its own; a bridge in the network of the node
``head`` joins them, so that the machine's own network sees nothing. ``head`` runs slurmctld and stands for a login
node. Killing the process 1 of a node is like pulling its plug. Needs root and the packages that
``.ci/system_packages.py`` lists for hosts.

``python cluster_bed.py FOLDER`` waits until its standard input ends, and removes the bed of FOLDER. Each bed starts it,
so that the bed is removed also when a signal ends the tests.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_NETWORK = "10.88.0"
HEAD = "head"
_START_S = 60.0
_NAMESPACES = Path("/run/netns")
_OUTSIDE = "/var/tmp"  # noqa: S108 - folders there have names that nobody can foresee
_SLURM_CONF = """\
ClusterName=bed
SlurmctldHost=head({network}.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MessageTimeout=30
SlurmdParameters=config_overrides
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
TmpFS={folder}/tmp/%n
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
"""
_NODE = (
    "NodeName={name} NodeAddr={address} CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=2000 "
    "Gres=gpu:2 State=UNKNOWN\n"
)
_PARTITION = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO PreemptMode=OFF\n"
_SSHD_CONF = """\
HostKey {folder}/ssh/host
AuthorizedKeysFile {folder}/ssh/id.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
"""
_SSH_CONF = """\
Host *
  IdentityFile {folder}/ssh/id
  UserKnownHostsFile {folder}/ssh/known_hosts
  IdentitiesOnly yes
  BatchMode yes
"""


class ClusterBed:
    """A cluster of ``nodes`` nodes, named ``n0``, ``n1``, …, and of the node ``head``."""

    def __init__(self, nodes: int, disk_bytes: int | None = None) -> None:
        """Make the folder of the bed.

        Args:
            nodes: how many there are, without the head.
            disk_bytes: the size of each node's own disk, which holds its /tmp and Slurm's spool; None for folders of
                this machine.
        """
        # A disk of its own hides what else is in a node's /tmp.
        self.folder = Path(tempfile.mkdtemp(prefix="bed-", dir=_OUTSIDE if disk_bytes else None))
        self.folder.chmod(0o755)
        self.nodes = [f"n{index}" for index in range(nodes)]
        self._disk_bytes = disk_bytes
        self._mark = self.folder.name
        self._outer: dict[str, subprocess.Popen[bytes]] = {}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._remover = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )

    def up(self) -> None:
        """Make the network, start the daemons, and wait until every node is idle."""
        self._write_settings()
        self._start_munged()
        self._make_network()
        self._start(HEAD, "slurmctld -D")
        for name in self.nodes:
            self._start(name, self._daemons_of(name))
        deadline = time.monotonic() + _START_S
        while self.run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() != str(len(self.nodes)):
            if time.monotonic() > deadline:
                message = f"the nodes are not idle after {_START_S:g} s: {self.run('sinfo', '-N', '-l').stdout}"
                raise RuntimeError(message)
            time.sleep(0.1)

    def down(self) -> None:
        """End every process of the bed, and remove its networks and files."""
        self._remover.communicate()
        for process in [*self._outer.values(), *self._daemons]:
            process.wait()

    def address(self, node: str) -> str:
        """Return the address of a node."""
        return f"{_NETWORK}.{254 if node == HEAD else self.nodes.index(node) + 1}"

    def command(self, node: str, argv: Sequence[str]) -> list[str]:
        """Return the command that runs ``argv`` on a node, in the current folder."""
        spaces = ["--net", "--uts", "--mount", "--pid", f"--wdns={Path.cwd()}"]
        return ["nsenter", "-t", str(self._first(node)), *spaces, "--", *argv]

    def run(
        self, *argv: str, node: str = HEAD, environment: dict[str, str] | None = None, limit_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on a node to its end."""
        return subprocess.run(
            self.command(node, argv),
            check=False,
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            env=self.variables(environment),
        )

    def variables(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return the environment of programs that use the bed."""
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf"), **(more or {})}

    def kill(self, node: str) -> None:
        """End a node with everything that runs on it, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first(node), signal.SIGKILL)
        self._outer.pop(node).wait()

    def revive(self, node: str) -> None:
        """Start a killed node again, and wait until Slurm has it back."""
        self._start(node, self._daemons_of(node))
        deadline = time.monotonic() + _START_S
        while self.run("sinfo", "-h", "-n", node, "-o", "%t").stdout.strip() != "idle":
            if time.monotonic() > deadline:
                message = f"{node} is not idle again after {_START_S:g} s"
                raise RuntimeError(message)
            time.sleep(0.2)

    def start_slurm(self, node: str) -> None:
        """Start a node's killed slurmd again, or the head's slurmctld; as systemd would."""
        daemon = "slurmctld" if node == HEAD else f"slurmd -N {node}"
        silent = subprocess.DEVNULL
        subprocess.run(
            self.command(node, daemon.split()),
            check=True,
            stdin=silent,
            stdout=silent,
            stderr=silent,
            env=self.variables(),
        )

    def set_link(self, node: str, *, up: bool) -> None:
        """Cut the link of a node, or mend it; the node's own interface sees that it has no carrier."""
        port = f"p{self.nodes.index(node)}"
        state = "up" if up else "down"
        subprocess.run(["ip", "-n", self._space(HEAD), "link", "set", port, state], check=True, capture_output=True)

    def namespace(self, node: str) -> int | None:
        """Return the number of a node's process table; None for a node that was killed."""
        return _inode(Path(f"/proc/{self._first(node)}/ns/pid")) if node in self._outer else None

    def daemon_pids(self, node: str, program: str) -> list[int]:
        """Return the processes of a daemon on a node, by their numbers outside."""
        own = self.namespace(node)
        found = []
        for pid in _pids():
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                listens = b"listener" in Path(f"/proc/{pid}/cmdline").read_bytes()
                if name == program and (program != "sshd" or listens) and _inode(Path(f"/proc/{pid}/ns/pid")) == own:
                    found.append(pid)
        return found

    def processes(self, node: str) -> list[str]:
        """Return the command lines of all processes on a node, without those of the bed itself."""
        shown = self.run("ps", "-eo", "args", "--no-headers", node=node).stdout.splitlines()
        own = ("sh -c", "/usr/sbin/sshd", "sshd: /usr/sbin", "slurmd", "sleep 3600", "ps -eo", "slurmctld")
        return [line for line in shown if not line.startswith(own)]

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _first(self, node: str) -> int:
        """Return the number, outside, of the process 1 of a node."""
        below = Path(f"/proc/{self._outer[node].pid}/task/{self._outer[node].pid}/children").read_text().split()
        return int(below[0])

    def _daemons_of(self, name: str) -> str:
        sshd = f"/usr/sbin/sshd -f {self.folder}/ssh/sshd_config -E {self.folder}/log/sshd.{name}"
        return f"mkdir -p /run/sshd; {sshd}; slurmd -N {name} -D"

    def _write_settings(self) -> None:
        for name in (
            "log",
            "state",
            "spool",
            "tmp",
            "ssh",
            *(f"{kind}/{n}" for kind in ("spool", "tmp") for n in self.nodes),
        ):
            (self.folder / name).mkdir(exist_ok=True)
        names = [HEAD, *self.nodes]
        table = "".join(f"{self.address(name)} {name}\n" for name in names)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{table}")
        conf = _SLURM_CONF.format(network=_NETWORK, folder=self.folder)
        conf += "".join(_NODE.format(name=name, address=self.address(name)) for name in self.nodes) + _PARTITION
        (self.folder / "slurm.conf").write_text(conf)
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-1]\n")
        for index in range(2):
            os.mknod(self.folder / f"gpu{index}", 0o20666, os.makedev(1, 3))
        keys = self.folder / "ssh"
        for name in ("id", "host"):
            subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
        (keys / "sshd_config").write_text(_SSHD_CONF.format(folder=self.folder))
        (keys / "config").write_text(_SSH_CONF.format(folder=self.folder))
        (keys / "known_hosts").write_text(f"*,{_NETWORK}.* {(keys / 'host.pub').read_text()}")

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={self.folder}/munge.{ending}" for option, ending in files.items()]
        with (self.folder / "log" / "munged").open("wb") as log:
            self._daemons.append(
                subprocess.Popen(["/usr/sbin/munged", "-F", "--force", *options], stdout=log, stderr=log)
            )
        deadline = time.monotonic() + _START_S
        while not (self.folder / "munge.socket").exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _make_network(self) -> None:
        head = self._space(HEAD)
        lines = [f"netns add {head}", f"-n {head} link set lo up", f"-n {head} link add br0 type bridge"]
        lines += [f"-n {head} addr add {self.address(HEAD)}/24 dev br0", f"-n {head} link set br0 up"]
        for index, name in enumerate(self.nodes):
            space = self._space(name)
            lines += [
                f"netns add {space}",
                f"-n {space} link set lo up",
                f"-n {head} link add p{index} type veth peer name eth0 netns {space}",
                f"-n {head} link set p{index} master br0 up",
                f"-n {space} addr add {self.address(name)}/24 dev eth0",
                f"-n {space} link set eth0 up",
            ]
        for line in lines:
            subprocess.run(["ip", *line.split()], check=True, capture_output=True)

    def _start(self, name: str, daemons: str) -> None:
        """Start a node: its process 1 is a shell that runs the daemons in the foreground and then reaps."""
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        binds = (
            f"mount --bind {self.folder}/hosts /etc/hosts; mount --bind {self.folder}/ssh/config /etc/ssh/ssh_config"
        )
        if self._disk_bytes and name != HEAD:
            disk = f"mount -t tmpfs -o size={self._disk_bytes} disk"
            binds += f"; {disk} {self.folder}/spool/{name}; {disk} /tmp"
        # A developer's shell may take locks at its start (pyenv does), which a killed node would leave.
        if (startup := Path.home() / ".bashrc").exists():
            binds += f"; mount --bind /dev/null {shlex.quote(str(startup))}"
        script = (
            f"hostname {name}; mount --make-rprivate /; {binds}; echo ready >{ready}; "
            f"{daemons}; while :; do sleep 3600; done"
        )
        unshare = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._outer[name] = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self._space(name)}", *unshare],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.variables(),
            )
        deadline = time.monotonic() + _START_S
        while not ready.exists():
            if time.monotonic() > deadline:
                message = f"the node {name} did not start within {_START_S:g} s"
                raise RuntimeError(message)
            time.sleep(0.02)


@contextlib.contextmanager
def running_bed(nodes: int) -> Iterator[ClusterBed]:
    """Make a bed, and remove it in the end."""
    bed = ClusterBed(nodes)
    try:
        bed.up()
        yield bed
    finally:
        bed.down()


def remove(folder: Path) -> None:
    """End every process of the bed of ``folder``, and remove its networks and files."""
    spaces = list(_NAMESPACES.glob(f"{folder.name}-*"))
    networks = {_inode(path) for path in spaces}
    with contextlib.suppress(OSError, ValueError):
        munged = int((folder / "munge.pid").read_text())
        if "munged" in Path(f"/proc/{munged}/comm").read_text():
            os.kill(munged, signal.SIGKILL)
    while found := [pid for pid in _pids() if _inode(Path(f"/proc/{pid}/ns/net")) in networks]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for path in spaces:
        subprocess.run(["ip", "netns", "del", path.name], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _inode(path: Path) -> int | None:
    """Return the number of a namespace; None for that of a process that has ended, a zombie among them."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


if __name__ == "__main__":
    sys.stdin.read()
    remove(Path(sys.argv[1]))
