"""The faults: which there are, where each can happen, and how each is done and undone."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from remnants import Found, is_alive
from sites import HEAD, Run, Site, SlurmNodes, SshNodes, _Job

_TARGET_S = 60.0
"""How long a fault may wait for the process that it is to meet."""
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
"""Of Debian's package libfaketime."""
_OFFSET_S = 300
_ENDS = "kill -9"


@dataclass
class Fault:
    """One fault while it happens."""

    site: Site
    run: Run
    chance: random.Random
    what: str = ""
    """What was done to whom; empty as long as nothing was."""
    at: float = 0.0
    """Wall clock at which it was done."""
    hits_launch: bool = False
    """Whether the launch that ran at that moment must not count."""
    second: str = ""
    """What a second command said."""
    second_code: int | None = None
    heal: list[Callable[[], None]] = field(default_factory=list)
    """Undoes it, in reverse order."""
    _workers: list[Found] = field(default_factory=list)

    def begin(self) -> None:
        """Note who works, the instant before the fault."""
        self._workers = self.site.in_roles("worker")
        self.at = time.time()

    def done(self, what: str, *, hits_launch: bool = True) -> None:
        """Note what was done, right after it.

        Where no worker is left of those that worked before, no launch was met: a host agent that dies after the last
        worker's end has harmed nothing. This program may be kept waiting for seconds, so that it must not look for
        others.
        """
        self.at = self.at or time.time()
        self.what, self.hits_launch = what, hits_launch and any(is_alive(each) for each in self._workers)

    def await_role(self, role: str) -> Found | None:
        """Return a living process of a role, chosen by chance; None if the run ends before there is one."""
        deadline = time.monotonic() + _TARGET_S
        while self.run.poll() is None and time.monotonic() < deadline:
            if found := sorted(self.site.in_roles(role), key=lambda each: each.pid):
                return self.chance.choice(found)
            time.sleep(0.02)
        return None

    def undo(self) -> None:
        """Undo the fault."""
        while self.heal:
            self.heal.pop()()


def kill(role: str, *, hits_launch: bool = True) -> Callable[[Fault], None]:
    """Return the fault that kills a process of a role."""

    def happen(fault: Fault) -> None:
        target = fault.await_role(role)
        time.sleep(fault.chance.uniform(0.0, 0.3) if role != "controller" else 0.0)
        if target is None:
            return
        fault.begin()
        if is_alive(target):
            os.kill(target.pid, signal.SIGKILL)
            fault.done(f"{_ENDS} of {role} {target.pid}", hits_launch=hits_launch)

    return happen


def stop(seconds: tuple[float, float] | None) -> Callable[[Fault], None]:
    """Return the fault that stops a worker, for good or for a random number of seconds."""

    def happen(fault: Fault) -> None:
        target = fault.await_role("worker")
        time.sleep(fault.chance.uniform(0.0, 0.3))
        if target is None:
            return
        fault.begin()
        if not is_alive(target):
            return
        os.kill(target.pid, signal.SIGSTOP)
        fault.done(f"SIGSTOP of worker {target.pid}")
        if seconds:
            pause = fault.chance.uniform(*seconds)
            time.sleep(pause)
            with suppress(ProcessLookupError):
                os.kill(target.pid, signal.SIGCONT)
            fault.what += f" for {pause:.1f} s"

    return happen


def cut_link(seconds: float) -> Callable[[Fault], None]:
    """Return the fault that cuts the link of a node."""

    def happen(fault: Fault) -> None:
        site = fault.site
        assert isinstance(site, SshNodes)
        node = fault.chance.choice(site.nodes)
        fault.begin()
        site.bed.set_link(node, up=False)
        fault.done(f"link of {node} down for {seconds:g} s")
        time.sleep(seconds)
        site.bed.set_link(node, up=True)

    return happen


def kill_node(fault: Fault) -> None:
    """End a node with everything on it; it comes back a few seconds later."""
    site = fault.site
    assert isinstance(site, SshNodes)
    node = fault.chance.choice(site.nodes)
    fault.begin()
    site.bed.kill(node)
    fault.done(f"plug of {node} pulled")
    fault.heal.append(lambda: site.bed.revive(node))


def kill_daemon(name: str) -> Callable[[Fault], None]:
    """Return the fault that kills a daemon of Slurm, which is started again a few seconds later."""

    def happen(fault: Fault) -> None:
        site = fault.site
        assert isinstance(site, SlurmNodes)
        node = HEAD if name == "slurmctld" else fault.chance.choice(site.nodes)
        for pid in site.bed.daemon_pids(node, name):
            os.kill(pid, signal.SIGKILL)
        fault.done(f"{_ENDS} of {name} on {node}", hits_launch=False)
        time.sleep(fault.chance.uniform(1.0, 8.0))
        site.bed.start_slurm(node)

    return happen


def fill_results(fault: Fault) -> None:
    """Fill the disk on which the results are."""
    filler = fault.site.folder.parent / "filler"
    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 12))
            file.flush()
    fault.done("the disk of the results is full", hits_launch=False)
    fault.heal.append(filler.unlink)


def fill_node(fault: Fault) -> None:
    """Fill a node's own disk: its /tmp and the spool of its slurmd."""
    site = fault.site
    assert isinstance(site, SshNodes)
    node = fault.chance.choice(site.nodes)
    spool = site.bed.folder / "spool" / node / "filler"
    site.shell(f"cat /dev/zero >/tmp/filler; cat /dev/zero >{spool}", node)
    fault.done(f"the disk of {node} is full", hits_launch=False)

    def empty() -> None:
        site.shell(f"rm -f /tmp/filler {spool}", node)
        site.shell(f"scontrol update nodename={node} state=resume")

    fault.heal.append(empty)


def make_read_only(fault: Fault) -> None:
    """Make the folder of the results read-only on every node, by a mount over it."""
    folder, site = fault.site.folder, fault.site
    nodes: Sequence[str | None] = [HEAD, *site.nodes] if site.nodes else [None]
    for node in nodes:
        site.shell(f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}", node)
    fault.done("the shared folder is read-only", hits_launch=False)
    fault.heal += [lambda node=node: site.shell(f"umount -l {folder}", node) for node in nodes]


def start_second(fault: Fault) -> None:
    """Start a second command on the same results, on another node where there is one."""
    node = fault.site.nodes[-1] if fault.site.nodes else None
    second = fault.site.start(node)
    if fault.run.poll() is not None:
        second.wait(120.0)
        return
    fault.done(f"a second command{f' on {node}' if node else ''}", hits_launch=False)
    fault.second_code = second.wait(120.0)
    fault.second = second.said()


def shift_clock(fault: Fault) -> None:
    """Have the wall clock of all that ssh starts on a node from now on five minutes off."""
    site = fault.site
    assert isinstance(site, SshNodes)
    node, sign = fault.chance.choice(site.nodes), fault.chance.choice("+-")
    variables = f"LD_PRELOAD={FAKETIME} FAKETIME={sign}{_OFFSET_S}s FAKETIME_DONT_FAKE_MONOTONIC=1"
    _restart_sshd(site, node, f"-o 'SetEnv {variables}'")
    fault.done(f"clock of {node} {sign}{_OFFSET_S} s", hits_launch=False)
    fault.heal.append(lambda: _restart_sshd(site, node, ""))


def _restart_sshd(site: SshNodes, node: str, option: str) -> None:
    for pid in site.bed.daemon_pids(node, "sshd"):
        os.kill(pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        site.shell(f"/usr/sbin/sshd -f {site.bed.folder}/ssh/sshd_config {option} >/dev/null 2>&1", node)


def requeue(fault: Fault) -> None:
    """Have Slurm end the job and begin it again."""
    site = fault.site
    assert isinstance(site, SlurmNodes)
    assert isinstance(fault.run, _Job)
    fault.begin()
    site.shell(f"scontrol requeue {fault.run.number}")
    fault.done(f"requeue of job {fault.run.number}")


@dataclass(frozen=True)
class Kind:
    """A fault, and where it can happen."""

    happen: Callable[[Fault], None]
    sites: Sequence[str] = ("machine", "ssh", "slurm")
    ends_run: bool = False
    """Whether the command cannot go on, and is to be killed where it has not ended by itself."""


KINDS: dict[str, Kind] = {
    "controller": Kind(kill("controller"), ends_run=True),
    "worker": Kind(kill("worker")),
    "server": Kind(kill("server")),
    "host agent": Kind(kill("host agent"), ("ssh", "slurm")),
    "line": Kind(kill("line"), ("ssh", "slurm")),
    "slurmd": Kind(kill_daemon("slurmd"), ("slurm",)),
    "slurmctld": Kind(kill_daemon("slurmctld"), ("slurm",)),
    "node": Kind(kill_node, ("ssh", "slurm"), ends_run=True),
    "link 1 s": Kind(cut_link(1.0), ("ssh", "slurm")),
    "link 10 s": Kind(cut_link(10.0), ("ssh", "slurm")),
    "link 60 s": Kind(cut_link(60.0), ("ssh", "slurm"), ends_run=True),
    "results' disk full": Kind(fill_results, ends_run=True),
    "node's disk full": Kind(fill_node, ("ssh", "slurm")),
    "worker stopped": Kind(stop(None)),
    "worker paused": Kind(stop((0.5, 3.0))),
    "two controllers": Kind(start_second, ("machine", "ssh")),
    "read-only": Kind(make_read_only, ends_run=True),
    "clock": Kind(shift_clock, ("ssh",)),
    "requeue": Kind(requeue, ("slurm",)),
}
"""By the names that ``--only`` takes."""
