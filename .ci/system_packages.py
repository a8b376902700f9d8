"""The system packages that tests use beyond Python, in Debian's names: the one list of them.

``python .ci/system_packages.py`` prints the command that installs those that are missing, and nothing if none is;
``--install`` runs it. A test names its need by a key of ``NEEDS`` (``@pytest.mark.needs("mpi")``) and is skipped, with
that command, where a package is missing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from ctypes.util import find_library
from pathlib import Path

PYTHON_HEADERS = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"

NEEDS: Mapping[str, tuple[str, ...]] = {
    # The report's page in a browser; its charts are laid out for letters as wide as Helvetica's.
    "browser": ("chromium", "chromium-driver", "fontconfig", "fonts-liberation"),
    # Launches over several hosts, on nodes with a real Slurm and a real sshd that are made of namespaces.
    "hosts": (
        *("slurmctld", "slurmd", "slurm-client", "munge"),
        *("openssh-server", "openssh-client", "iproute2", "procps"),
    ),
    # The same, with a real Grid Engine.
    "gridengine": ("gridengine-master", "gridengine-exec", "gridengine-client"),
    # Emulated hosts.
    "emulation": ("iproute2",),
    # Workers that an mpiexec starts, where no framework's environment brings one.
    "mpi": ("mpich",),
    # Interpreters in containers.
    "containers": ("bubblewrap",),
    # The same of podman, as an ordinary user has it.
    "podman": ("podman", "runc"),
    # A file system that refuses locks.
    "locks": ("fuse3", "libfuse2"),
    # What scrapes the text that is written for it.
    "prometheus": ("prometheus",),
    # What MXNet loads, which minimal systems lack.
    "mxnet": ("libgomp1",),
    # torch.compile, Horovod's build and what CNTK's environment is finished with.
    "compiler": ("g++", PYTHON_HEADERS),
}
"""The packages behind each need of a test."""


def _program(*names: str) -> Callable[[], bool]:
    def is_there() -> bool:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        return any(shutil.which(name, path=path) for name in names)

    return is_there


def _has_liberation() -> bool:
    fc_list = shutil.which("fc-list")
    if fc_list is None:
        return False
    return "liberation" in subprocess.run([fc_list], capture_output=True, text=True, check=False).stdout.lower()


_IS_THERE: Mapping[str, Callable[[], object]] = {
    "chromium": _program("chromium", "chromium-browser", "google-chrome"),
    "chromium-driver": _program("chromedriver"),
    "fontconfig": _program("fc-list"),
    "fonts-liberation": _has_liberation,
    "slurmctld": _program("slurmctld"),
    "slurmd": _program("slurmd"),
    "slurm-client": _program("srun"),
    "munge": _program("munged"),
    "openssh-server": _program("sshd"),
    "openssh-client": _program("ssh"),
    "gridengine-master": _program("sge_qmaster"),
    "gridengine-exec": _program("sge_execd"),
    "gridengine-client": _program("qconf"),
    "iproute2": _program("ip"),
    "procps": _program("ps"),
    "mpich": _program("mpiexec"),
    "bubblewrap": _program("bwrap"),
    "podman": _program("podman"),
    "runc": _program("runc"),
    "prometheus": _program("prometheus"),
    "fuse3": _program("fusermount3"),
    "libfuse2": lambda: find_library("fuse"),
    "libgomp1": lambda: find_library("gomp"),
    "g++": _program("g++", "clang++"),
    PYTHON_HEADERS: Path(sysconfig.get_path("include"), "Python.h").exists,
}
"""Whether the system has what a package brings, from that package or from another."""


def missing_packages(needs: Iterable[str] = NEEDS) -> list[str]:
    """Return the packages of some needs that this system lacks, without duplicates."""
    packages = dict.fromkeys(package for need in needs for package in NEEDS[need])
    return [package for package in packages if not _IS_THERE[package]()]


def install_command(packages: Iterable[str]) -> str:
    """Return the command that installs packages, to be given by root."""
    return f"apt-get install --no-install-recommends {' '.join(packages)}"


def missing(*needs: str) -> str | None:
    """Say which packages of some needs are missing and how to get them; None if all are there."""
    packages = missing_packages(needs)
    return f"missing {', '.join(packages)}: {install_command(packages)}" if packages else None


def _install(packages: list[str]) -> None:
    """Install packages, each by itself if they cannot be had together; complain about those that cannot be had."""
    apt = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if all(map(shutil.which, ["apt-get", *apt[:1]])):
        subprocess.run([*apt, "apt-get", "update", "-q"], check=False)
        apt += ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q", "--no-install-recommends"]
        if subprocess.run([*apt, *packages], check=False).returncode:
            for package in packages:
                subprocess.run([*apt, package], check=False)
    if left := missing_packages():
        sys.stderr.write(f"Tests that need them will be skipped; install as root: {install_command(left)}\n")


def main() -> None:
    """Print or run the command that installs what is missing."""
    parser = argparse.ArgumentParser(description="System packages that the tests use and this system lacks.")
    parser.add_argument("--install", action="store_true", help="install them, as root or by sudo without a password")
    install, packages = parser.parse_args().install, missing_packages()
    if packages and install:
        _install(packages)
    elif packages:
        sys.stdout.write(f"{install_command(packages)}\n")


if __name__ == "__main__":
    main()
