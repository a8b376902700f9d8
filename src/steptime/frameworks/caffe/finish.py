"""Completes the environment with Debian 11's Caffe, its Python and an MPI binding for that Python.

Run by the environment's own Python as ``finish.py FOLDER caffe==VERSION``. Packages are downloaded by apt into a
private state, which needs no rights and changes nothing of the system, checked against Debian's signatures and against
the versions and digests in ``finish.lock``, and unpacked into ``FOLDER/debian``. ``FOLDER/bin/caffe-python`` starts the
Python in there with the C library of its own, whichever this system has.

``finish.py --lock`` prints a new ``finish.lock`` from what Debian has now.
"""

import glob
import gzip
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from typing import NoReturn

_RELEASE = "bullseye"
_PACKAGES = ("python3-caffe", "caffe", "libopenblas0-pthread")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names of machines, by Python's."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_LOCK = os.path.join(_HERE, "finish.lock")
_LOCKED = re.compile(r"^(\S+)==(\S+) ; platform_machine == '(\S+)' \\\n    --hash=sha256:(\S+)$", re.MULTILINE)
_RENEW = "steptime env lock caffe"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_MIRROR = "STEPTIME_DEBIAN_MIRROR"
"""The variable by which a system whose apt knows no mirror of Debian is told of one."""
_MISSING = (
    ("apt-get", "sudo apt-get install dpkg debian-archive-keyring"),
    ("dnf", "sudo dnf install apt dpkg debian-keyring"),
    ("pacman", "sudo pacman -S apt dpkg debian-archive-keyring"),
)
_CONFIGURATION = """
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Sandbox::User "root";
Acquire::Retries "3";
Acquire::ForceHash "sha256";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""
_WRAPPER = """#!/bin/sh
# Debian 11's Python, started by the loader of its own C library.
export MPI4PY_LIBMPI={mpi}
exec {loader} --library-path {libraries} {python} "$@"
"""
# Whatever asks Python for itself, to start another one, must be given the program that can be started.
_SITE = """import sys

sys.executable = {wrapper!r}
"""
_METADATA = "Metadata-Version: 2.1\nName: caffe\nVersion: {version}\n"


def finish(folder, caffe):
    """Complete the environment at ``folder`` with the ``caffe`` that this requirement names.

    Raises SystemExit with what is missing, and with a command that helps where one is known.
    """
    _require_programs()
    root = os.path.join(folder, "debian")
    scratch = os.path.join(folder, "debian-download")
    locked = _locked(platform.machine())
    try:
        packages = _download(scratch, sorted("%s=%s" % (name, version) for name, (version, _) in locked.items()))
        _require_digests(packages, locked)
        _unpack(packages, root)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    version = caffe.split("==")[1]
    _require_version(root, version)
    target = os.path.join(root, "usr", "local", "lib", "python3.9", "dist-packages")
    _install_binding(target)
    # Debian's package does not tell Python its version.
    _write(os.path.join(target, "caffe-%s.dist-info" % version, "METADATA"), _METADATA.format(version=version))
    wrapper = os.path.join(folder, "bin", "caffe-python")
    _write(os.path.join(root, "usr", "lib", "python3.9", "sitecustomize.py"), _SITE.format(wrapper=wrapper))
    _write_wrapper(wrapper, folder, root)


def print_lock():
    """Print the versions and digests of Caffe's packages and of all that they need, for every kind of machine."""
    _require_programs()
    lines = ["# Made by `%s`; not to be edited by hand." % _RENEW]
    for machine, architecture in sorted(_ARCHITECTURES.items()):
        with tempfile.TemporaryDirectory() as scratch:
            listed = _apt(scratch, ["--print-uris"] + list(_PACKAGES), architecture)
        for file, digest in sorted(re.findall(r"^'\S+' (\S+)\.deb \d+ SHA256:(\S+)", listed, re.MULTILINE)):
            name, version, _ = urllib.parse.unquote(file).split("_")
            lines.append(
                "%s==%s ; platform_machine == '%s' \\\n    --hash=sha256:%s" % (name, version, machine, digest)
            )
    sys.stdout.write("\n".join(lines) + "\n")


def _locked(machine):
    """Return ``{package: (version, digest)}`` for a kind of machine, as ``platform.machine`` calls it."""
    with open(_LOCK, encoding="utf-8") as file:
        found = _LOCKED.findall(file.read())
    locked = {name: (version, digest) for name, version, its, digest in found if its == machine}
    if not locked:
        _fail("Caffe's packages are known for %s, not for %s" % (" and ".join(sorted(_ARCHITECTURES)), machine))
    return locked


def _require_digests(packages, locked):
    """Refuse packages that are not the files that the lock names: nothing of them has been unpacked yet."""
    expected = {digest: name for name, (_, digest) in locked.items()}
    for package in packages:
        with open(package, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if expected.pop(digest, None) is None:
            _fail("%s is another file than the one that the lock names" % os.path.basename(package), _RENEW)
    if expected:
        _fail("apt has not downloaded what the lock names: %s" % ", ".join(sorted(expected.values())), _RENEW)


def _require_programs():
    lacking = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    lacking += [_KEYRING] if not os.path.exists(_KEYRING) else []
    if lacking:
        fix = next((command for tool, command in _MISSING if shutil.which(tool)), None)
        _fail("Caffe is taken from Debian 11's packages, for which this system lacks %s" % ", ".join(lacking), fix)


def _download(scratch, packages):
    """Return the paths of ``packages``, each as ``NAME=VERSION``, from the first mirror that has them."""
    _apt(scratch, ["--download-only"] + packages)
    return sorted(glob.glob(os.path.join(scratch, "cache", "archives", "*.deb")))


def _apt(scratch, arguments, architecture=None):
    """Return what apt-get install said, with its state in ``scratch``, by the first mirror with which it succeeded."""
    apt = shutil.which("apt-get") or "apt-get"
    for mirror in _mirrors():
        shutil.rmtree(scratch, ignore_errors=True)
        configuration = os.path.join(scratch, "apt.conf")
        own = (
            'APT::Architecture "{0}";\nAPT::Architectures {{ "{0}"; }};\n'.format(architecture) if architecture else ""
        )
        _write(configuration, _CONFIGURATION.format(folder=scratch) + own)
        _write(os.path.join(scratch, "status"), "")
        source = "deb [signed-by=%s] %s %s main\n" % (_KEYRING, mirror, _RELEASE)
        _write(os.path.join(scratch, "sources.list"), source)
        for each in ("state/lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(scratch, each))
        variables = dict(os.environ, APT_CONFIG=configuration)
        if subprocess.call([apt, "update", "-q"], env=variables, stdout=sys.stderr):
            continue
        command = [apt, "install", "-qq", "-y"] + arguments
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, universal_newlines=True)
        said = process.communicate()[0]
        if process.returncode == 0:
            return said
    sys.stderr.write("fix: %s=ADDRESS-OF-A-DEBIAN-MIRROR steptime env create caffe\n" % _MIRROR)
    return _fail(
        "no mirror gave the packages of Debian 11 (%s): %s" % (_RELEASE, ", ".join(_mirrors()) or "none known")
    )


def _mirrors():
    """The mirror that the user names, and this system's mirrors of Debian, if it has any."""
    listed = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    found = [line.split(" ") for line in subprocess.check_output(listed, universal_newlines=True).splitlines()]
    own = [parts[1].rstrip("/") for parts in found if len(parts) == 2 and parts[0] == "Debian"]  # noqa: PLR2004 - a pair
    named = [os.environ[_MIRROR].rstrip("/")] if os.environ.get(_MIRROR) else []
    return list(dict.fromkeys(named + own))


def _unpack(packages, root):
    sys.stdout.write("unpacking %d packages\n" % len(packages))
    sys.stdout.flush()
    os.makedirs(root)
    for package in packages:
        subprocess.check_call([shutil.which("dpkg-deb") or "dpkg-deb", "-x", package, root])


def _require_version(root, version):
    path = os.path.join(root, "usr", "share", "doc", "python3-caffe", "changelog.Debian.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        first = file.readline()
    if "(%s-" % version not in first:
        _fail("Debian 11 has another Caffe than %s: %s" % (version, first.strip()))


def _install_binding(target):
    command = [sys.executable, "-I", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", "3.9", "--abi", "cp39"]
    command += ["--require-hashes", "-r", os.path.join(_HERE, "finish-requirements.lock")]
    subprocess.check_call(command + ["--target", target])


def _write_wrapper(wrapper, folder, root):
    loader = next(iter(glob.glob(os.path.join(root, "lib", "*", "ld-2.*.so"))), None)
    if loader is None:
        _fail("the C library of Debian 11 was not unpacked into %s" % root)
    triplet = os.path.basename(os.path.dirname(loader))
    own = os.path.join(root, "usr", "lib", triplet)
    libraries = [os.path.join(own, "openblas-pthread"), os.path.dirname(loader), own, os.path.join(root, "usr", "lib")]
    values = {
        "mpi": os.path.join(folder, "lib", "libmpi.so.12"),
        "loader": loader,
        "libraries": ":".join(libraries),
        "python": os.path.join(root, "usr", "bin", "python3.9"),
    }
    _write(wrapper, _WRAPPER.format(**{name: shlex.quote(value) for name, value in values.items()}))
    os.chmod(wrapper, 0o755)  # noqa: S103 - a program that everybody may start, like its neighbours


def _write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(path):  # Debian's own leads to the system's settings
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _fail(why: str, fix: Optional[str] = None) -> "NoReturn":
    sys.stderr.write(why + "\n" + ("fix: %s\n" % fix if fix else ""))
    raise SystemExit(1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--lock"]:
        print_lock()
    else:
        finish(os.path.abspath(sys.argv[1]), *sys.argv[2:])
