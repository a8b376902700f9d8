"""The launcher ``emulated``: several hosts made of this machine, with links of a given speed between them."""

import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace

from steptime.catalog.cluster import Cluster, cluster_for
from steptime.errors import LaunchError
from steptime.launchers.base import LOCALHOST, AbstractLauncher, free_ports
from steptime.launchers.emulation.commands import processes
from steptime.launchers.emulation.hosts import made_hosts
from steptime.launchers.emulation.requirements import is_privileged, missing_program, missing_requirement
from steptime.launchers.emulation.rootless import run_below
from steptime.launchers.mpiexec import missing_mpiexec
from steptime.launchers.processes import watch
from steptime.launchers.request import Isolation, LaunchOutcome, Process, Request


class EmulatedLauncher(AbstractLauncher):
    """Makes a host of a network namespace, a host name and a control group for each of the request's hosts.

    Without a cluster in the request, every worker has a host and every server of its own another, and nothing
    limits the links.
    """

    name = "emulated"
    summary = "hosts made of this machine, with a name, a link and a share of the processor each"

    def isolation(self, wanted: Isolation) -> str | None:
        del wanted
        return "network namespaces of emulated hosts"

    def plan(self, request: Request, marker: str, ports: Sequence[int]) -> list[Process]:
        return processes(request, _cluster(request), marker, ports)

    def missing_requirement(self, request: Request) -> str | None:
        return missing_program() or (missing_mpiexec(request) if request.mpi else None)

    def run(self, request: Request) -> LaunchOutcome:
        reason = missing_requirement()
        if reason:
            raise LaunchError(reason)
        program = request.command[0]
        if not os.access(program, os.X_OK) and shutil.which(program) is None:
            message = f"could not start {program}: it is not a program"
            raise LaunchError(message)
        if not is_privileged():
            return run_below(request)
        marker = uuid.uuid4().hex
        ports = free_ports(1 + request.workers + request.servers, LOCALHOST)
        planned = self.plan(request, marker, ports)
        with made_hosts(_cluster(request), request) as hosts:
            outcome = watch(planned, request, marker, hosts.broken)
            if broken := hosts.broken():
                return replace(outcome, ok=False, reason=broken)
            return replace(outcome, cluster=hosts.findings(), isolation=self.isolation(request.isolation))


def _cluster(request: Request) -> Cluster:
    own_servers = 0 if request.colocated_servers else request.servers
    return request.cluster or cluster_for(workers=request.workers, own_servers=own_servers)
