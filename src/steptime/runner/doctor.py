"""The examination of this machine: what it has for measuring, what is missing, and the command that fixes it."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from steptime.catalog.accelerators import find_accelerators
from steptime.catalog.manifest import Manifest, broken_frameworks, load_manifests
from steptime.catalog.workloads.table import LIBRARY
from steptime.datasets.builtins import BUILTINS
from steptime.environments.cache import cache_folder
from steptime.environments.kinds import find_ready
from steptime.environments.spec import choose_python
from steptime.environments.subprocesses import ask
from steptime.errors import EnvironmentFailure
from steptime.execution.host import SHARED_MEMORY, shared_memory_bytes, usable_cores
from steptime.launchers.emulation.control_groups import find_groups
from steptime.launchers.emulation.network import can_switch
from steptime.launchers.emulation.verification import is_privileged, kernel_delays, missing_requirement
from steptime.launchers.namespaces import (
    MAKE_DEVICE_FILE,
    NO_NAMESPACE,
    UNIFIED_MEMORY,
    USER_NAMESPACE,
    isolation_kind,
)
from steptime.launchers.table import LAUNCHERS
from steptime.results.machine import quota_cores
from steptime.runner.preparation import environment_spec
from steptime.study.environment_variables import passed, stripped
from steptime.study.study_file import broken_studies
from steptime.units import format_bytes

_ROOM_BYTES = 6 * 2**30
"""What the environments of the default frameworks take, with their installers' caches."""
_SHARED_BYTES = 2**30
"""Of /dev/shm: two batches of each of eight helpers, of 112 images of 3x224x224."""
_SHARE = "docker run --shm-size=2g, or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm"
_NOT_INSTALLED = "not installed"
_LIMIT_S = 60.0
_BUSY_CORES = 0.25
"""A load per core above this makes quiet measurements unlikely."""


@dataclass(frozen=True)
class MachineFinding:
    """One line of the examination."""

    name: str
    status: Literal["ok", "note", "missing"]
    """``note`` limits what can be measured or believed; ``missing`` keeps something from running."""
    detail: str
    fix: str | None = None
    """The command, or the setting, that fixes it."""


def examine() -> Iterator[MachineFinding]:
    """Yield what is found, one thing after the other; starts nothing but Pythons to ask for their version."""
    yield MachineFinding("python", "ok", f"{sys.version.split()[0]}, {sys.executable}")
    yield _cores()
    yield _memory()
    yield _shared_memory()
    yield _disk()
    yield _load()
    yield _frequency()
    yield from _cuda()
    yield _mpi()
    yield _emulation()
    yield _isolation()
    yield _variables()
    for manifest in load_manifests().values():
        yield _framework(manifest)
    yield from broken_plugins()


def in_brief(findings: Iterable[MachineFinding]) -> Iterator[MachineFinding]:
    """Yield what is found, and last, as one, the frameworks that are not installed and can be."""
    absent = []
    for finding in findings:
        if finding.detail.startswith(_NOT_INSTALLED):
            absent.append(finding.name)
        else:
            yield finding
    if absent:
        detail = f"{_NOT_INSTALLED}: {', '.join(absent)}"
        yield MachineFinding("frameworks", "note", detail, "steptime env create NAME")


def broken_plugins() -> Iterator[MachineFinding]:
    """Yield what other distributions bring and cannot be used, each with its cause."""
    causes = {**broken_frameworks(), **broken_studies()}
    for registry in (LIBRARY, LAUNCHERS, BUILTINS):
        causes |= registry.broken()
    for name, cause in causes.items():
        yield MachineFinding(name, "missing", cause, "repair or uninstall the distribution that brings it")


def _cores() -> MachineFinding:
    usable = len(usable_cores())
    detail = f"{usable} usable of {os.cpu_count()}"
    quota = quota_cores()
    if quota is not None and quota < usable:
        held_back = f"{detail}; a quota of this control group, or of one around it, leaves {quota:.3g} of them"
        fix = "raise it (docker run --cpus, CPUQuota= of systemd, limits.cpu of Kubernetes); steps wait for it"
        return MachineFinding("cores", "note", held_back, fix)
    if usable == 1:
        return MachineFinding(
            "cores", "note", f"{detail}; two workers would share one core, which every result will say"
        )
    return MachineFinding("cores", "ok", detail)


def _memory() -> MachineFinding:
    memory = psutil.virtual_memory()
    return MachineFinding("memory", "ok", f"{format_bytes(memory.available)} free of {format_bytes(memory.total)}")


def _shared_memory() -> MachineFinding:
    found = shared_memory_bytes()
    if found is None:
        return MachineFinding("shared memory", "note", f"no {SHARED_MEMORY}; some loader helpers need it", _SHARE)
    detail = f"{format_bytes(found[0])} free of {format_bytes(found[1])} in {SHARED_MEMORY}"
    if found[0] < _SHARED_BYTES:
        detail += "; loader helpers of some frameworks keep batches there, and one that finds it full is killed"
        return MachineFinding("shared memory", "note", detail, _SHARE)
    return MachineFinding("shared memory", "ok", detail)


def _disk() -> MachineFinding:
    try:
        folder = cache_folder()
    except EnvironmentFailure as failure:
        return MachineFinding("disk", "missing", str(failure), failure.fix)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    detail = f"{format_bytes(free)} free for {folder}"
    if free < _ROOM_BYTES:
        fix = "free some space, or set STEPTIME_CACHE to a folder on another disk"
        return MachineFinding(
            "disk", "missing", f"{detail}; all frameworks need about {format_bytes(_ROOM_BYTES)}", fix
        )
    return MachineFinding("disk", "ok", detail)


def _load() -> MachineFinding:
    load = os.getloadavg()[0]
    if load > _BUSY_CORES * len(usable_cores()):
        fix = "end other programs while measuring; launches that they disturb are flagged"
        return MachineFinding("load", "note", f"{load:.2f} processes were running on average over the last minute", fix)
    return MachineFinding("load", "ok", f"{load:.2f} over the last minute")


def _frequency() -> MachineFinding:
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if not governor.exists():
        return MachineFinding("frequency", "note", "the system does not show how it sets the processor's clock")
    name = governor.read_text().strip()
    if name != "performance":
        return MachineFinding(
            "frequency", "note", f"governor {name!r} varies the clock", "cpupower frequency-set -g performance"
        )
    return MachineFinding("frequency", "ok", "governor 'performance'")


def _cuda() -> Iterator[MachineFinding]:
    found = find_accelerators()
    names = [each.name for each in found.devices]
    if not names:
        yield MachineFinding("cuda", "note", "no CUDA device; studies with device: auto use the processor")
        return
    yield MachineFinding("cuda", "ok", f"{', '.join(names)}, driver {found.driver}")
    if isolation_kind() == USER_NAMESPACE and not UNIFIED_MEMORY.exists():
        detail = f"{UNIFIED_MEMORY} is missing, without which CUDA does not start in a {USER_NAMESPACE}"
        yield MachineFinding("cuda device file", "note", detail, f"sudo {MAKE_DEVICE_FILE}")
    if lacking := _lacking_for_kernels():
        detail = f"this machine lacks {' and '.join(lacking)}, so that the tier 'tuned' trains without torch.compile"
        yield MachineFinding("cuda compiler", "note", detail, f"sudo apt-get install {' '.join(lacking)}")


def _lacking_for_kernels() -> list[str]:
    """Return Debian's packages of what torch compiles with for devices, and this machine lacks."""
    lacking = [] if any(map(shutil.which, ("gcc", "clang"))) else ["gcc"]
    with contextlib.suppress(EnvironmentFailure):  # no Python for it, which has a line of its own
        python, version = choose_python("pytorch", load_manifests()["pytorch"].python)
        _, folder = ask([str(python), "-c", "import sysconfig; print(sysconfig.get_path('include'))"], _LIMIT_S)
        if not Path(folder.strip(), "Python.h").exists():
            lacking.append(f"python{version}-dev")
    return lacking


def _mpi() -> MachineFinding:
    system = shutil.which("mpiexec")
    detail = f"system: {system}" if system else "no system MPI; MPI-based frameworks bring their own from wheels"
    return MachineFinding("mpi", "ok", detail)


def _emulation() -> MachineFinding:
    reason = missing_requirement()
    if reason:
        return MachineFinding("emulated hosts", "note", reason)
    groups = find_groups()
    shares = f"shares of the processor by {groups.words}" if groups else "no shares of the processor"
    delays = "delays by netem" if kernel_delays() else "delays by a program" if can_switch() else "no delays"
    networks = "network namespaces" if is_privileged() else "network namespaces within a user namespace"
    return MachineFinding("emulated hosts", "ok", f"{networks}, {shares}, {delays}")


def _isolation() -> MachineFinding:
    kind = isolation_kind()
    if kind:
        detail = f"launches of 'local' and 'mpi' run in a {kind}: no other user can reach their sockets"
        return MachineFinding("isolation", "ok", detail)
    detail = (
        "other users of this machine can reach the sockets of launches by 'local' and 'mpi', and through them act as "
        "you; a study with 'isolation: required' is refused"
    )
    return MachineFinding("isolation", "note", detail, NO_NAMESPACE)


def _variables() -> MachineFinding:
    left, given = stripped(os.environ), passed(os.environ)
    passed_on = f"launches get {', '.join(given)} of your shell" if given else ""
    if not left:
        detail = passed_on or "no variable of your shell changes the speed of launches"
        return MachineFinding("environment variables", "ok", detail)
    detail = f"{', '.join(left)} of your shell change speed, and launches do not get them"
    if passed_on:
        detail += f"; {passed_on}"
    fix = "set in a study what you want of them: environment_variables: {NAME: value}; threads: threads_per_worker"
    return MachineFinding("environment variables", "note", detail, fix)


def _framework(manifest: Manifest) -> MachineFinding:
    spec = environment_spec(manifest)
    ready = find_ready(spec)
    if ready:
        version = ready.packages.get(manifest.distribution.lower(), "")
        return MachineFinding(manifest.name, "ok", f"{manifest.title} {version}, Python {ready.python_version}")
    try:
        python, version = choose_python(manifest.name, manifest.python)
    except EnvironmentFailure as failure:
        first, *rest = str(failure).splitlines()
        return MachineFinding(manifest.name, "missing", first, "\n".join(line.strip() for line in rest) or None)
    detail = f"{_NOT_INSTALLED}; Python {version} for it is {python}"
    return MachineFinding(manifest.name, "note", detail, f"steptime env create {manifest.name}")
