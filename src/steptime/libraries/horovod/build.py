"""Build Horovod for one framework from its source release, once, and install it into an environment.

::

    bin/python -I build.py ENVIRONMENT pytorch|tensorflow|mxnet horovod==0.28.1

Runs in the environment's own Python, after pip has installed the framework, and keeps the wheel in the folder that
``STEPTIME_WHEELS`` names, under a name that describes it. The wheel has both of Horovod's controllers, gloo and
MPI, for processors only; the MPI is the one of the environment (the distribution ``mpich``), which the built library
finds by its place beside it, so that one wheel serves every environment. CMake comes from the package index for the
time of the build; a C++ compiler and make must be on the machine.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Dict, List, Tuple

# The changes below fit these sources and no others.
_SOURCES = {"horovod==0.28.1": "sha256:92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"}
_CMAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cmake-requirements.lock")
_STANDARD = "set(CMAKE_CXX_STANDARD 14)"

# In every build: no search for CUDA, which is not used, libraries that find the MPI of their own environment, and no
# notes for debuggers: they take a third of the compiler's time, and most of the space.
_ALWAYS = (
    (
        "CMakeLists.txt",
        'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")',
        'set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -DNDEBUG")',
    ),
    ("CMakeLists.txt", "check_language(CUDA)\nif(NOT CMAKE_CUDA_COMPILER)", "if(FALSE)"),
    (
        "CMakeLists.txt",
        "set(CMAKE_CXX_EXTENSIONS OFF)",
        (
            "set(CMAKE_CXX_EXTENSIONS OFF)\nset(CMAKE_BUILD_WITH_INSTALL_RPATH ON)\n"
            'set(CMAKE_INSTALL_RPATH "$ORIGIN/../../../..")'
        ),
    ),
)


class Recipe(object):
    """What one framework needs: its distribution, Horovod's name for it, and ``(file, old, new)`` in the source."""

    def __init__(self, distribution: str, name: str, *changes: Tuple[str, str, str]) -> None:
        self.distribution = distribution
        self.name = name
        self.changes = _ALWAYS + changes


RECIPES = {
    # Its headers are written in the C++ of 2020. A build of torch with CUDA would ask for a CUDA toolkit.
    "pytorch": Recipe(
        "torch",
        "PYTORCH",
        ("CMakeLists.txt", _STANDARD, _STANDARD.replace("14", "20")),
        ("horovod/torch/CMakeLists.txt", _STANDARD, _STANDARD.replace("14", "20")),
        (
            "cmake/Modules/FindPytorch.cmake",
            'string(TOUPPER "${Pytorch_CUDA}" Pytorch_CUDA)',
            "set(Pytorch_CUDA FALSE)",
        ),
        (
            "cmake/Modules/FindPytorch.cmake",
            'string(TOUPPER "${Pytorch_ROCM}" Pytorch_ROCM)',
            "set(Pytorch_ROCM FALSE)",
        ),
    ),
    # The operators for XLA need headers that TensorFlow's wheels no longer have.
    "tensorflow": Recipe(
        "tensorflow-cpu",
        "TENSORFLOW",
        ("CMakeLists.txt", _STANDARD, _STANDARD.replace("14", "17")),
        (
            "horovod/tensorflow/CMakeLists.txt",
            'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")',
            "",
        ),
    ),
    "mxnet": Recipe("mxnet", "MXNET"),
}


def main(environment: str, framework: str, pin: str) -> None:
    """Install Horovod for ``framework`` into ``environment``; SystemExit names what is missing."""
    if pin not in _SOURCES:
        sys.exit("only %s can be built, not %s" % (" or ".join(sorted(_SOURCES)), pin))
    recipe = RECIPES[framework]
    shelf = os.path.join(os.environ["STEPTIME_WHEELS"], _address(framework, recipe, pin))
    if not _wheels(shelf):
        _require_tools(recipe)
        # Inside the environment, so that whoever removes a half-made environment removes this too.
        with tempfile.TemporaryDirectory(prefix="horovod-", dir=environment) as scratch:
            _build(recipe, pin, environment, scratch, shelf)
    _pip("install", "--no-deps", "--no-index", "--force-reinstall", _wheels(shelf)[0])


def _address(framework: str, recipe: Recipe, pin: str) -> str:
    """Name what a wheel depends on: the versions by name, the rest as a digest."""
    installed = _installed()
    missing = [name for name in (recipe.distribution, "mpich") if name not in installed]
    if missing:
        sys.exit("the environment lacks %s, which its requirements must name" % " and ".join(missing))
    version = installed[recipe.distribution]
    content = [
        _SOURCES[pin],
        recipe.name,
        recipe.changes,
        version,
        installed["mpich"],
        sysconfig.get_config_var("EXT_SUFFIX"),
    ]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]
    tag = "cp%d%d-%s" % (sys.version_info[0], sys.version_info[1], platform.machine())
    return "%s-%s-%s-%s-%s" % (pin.replace("==", "-"), framework, version, tag, digest)


def _installed() -> Dict[str, str]:
    """Return ``{distribution: version}`` of the environment."""
    told = subprocess.check_output([sys.executable, "-I", "-m", "pip", "list", "--format=json"], env=_variables())
    return {each["name"].lower().replace("_", "-"): each["version"] for each in json.loads(told.decode())}


def _wheels(shelf: str) -> List[str]:
    if not os.path.isdir(shelf):
        return []
    return [os.path.join(shelf, name) for name in sorted(os.listdir(shelf)) if name.endswith(".whl")]


def _require_tools(recipe: Recipe) -> None:
    missing = [package for program, package in (("c++", "g++"), ("make", "make")) if not shutil.which(program)]
    if recipe.name == "PYTORCH" and not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        missing.append("python%d.%d-dev" % sys.version_info[:2])
    if missing:
        sys.exit(
            "Horovod is built from source, which needs what this machine lacks: %s\nfix: apt-get install %s"
            % (", ".join(missing), " ".join(missing))
        )


def _build(recipe: Recipe, pin: str, environment: str, scratch: str, shelf: str) -> None:
    """Leave the wheel on ``shelf``; it appears there whole or not at all."""
    wanted = os.path.join(scratch, "source.txt")
    with open(wanted, "w") as file:
        file.write("%s --hash=%s\n" % (pin, _SOURCES[pin]))
    _pip("download", "--no-deps", "--no-binary", "horovod", "--no-build-isolation", "-d", scratch, "-r", wanted)
    _pip("install", "--no-deps", "--require-hashes", "--target", os.path.join(scratch, "tools"), "-r", _CMAKE)
    source = os.path.join(scratch, pin.replace("==", "-"))
    shutil.unpack_archive(source + ".tar.gz", scratch)
    for name, old, new in recipe.changes:
        _replace(os.path.join(source, name), old, new)
    made = os.path.join(scratch, "wheels")
    _pip(
        "wheel",
        "-v",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        made,
        source,
        **build_settings(recipe, environment, scratch),
    )
    os.makedirs(os.path.dirname(shelf), exist_ok=True)
    try:
        os.rename(made, shelf)
    except OSError:
        if not _wheels(shelf):  # else another build of the same was faster
            raise


def build_settings(recipe: Recipe, environment: str, scratch: str) -> Dict[str, str]:
    """Return the variables that Horovod's build reads."""
    settings = {"HOROVOD_WITHOUT_" + each.name: "1" for each in RECIPES.values() if each is not recipe}
    settings.update(
        HOROVOD_WITH_GLOO="1",
        HOROVOD_WITH_MPI="1",
        HOROVOD_WITHOUT_NVTX="1",
        HOROVOD_CMAKE=os.path.join(scratch, "tools", "cmake", "data", "bin", "cmake"),
        # The environment's own mpicxx comes before any of the system's.
        PATH=os.path.join(environment, "bin") + os.pathsep + os.environ.get("PATH", os.defpath),
        MAKEFLAGS=_make_flags(),
    )
    settings["HOROVOD_WITH_" + recipe.name] = "1"
    return settings


def _make_flags() -> str:
    """Return a number of compilers: as many as cores, unless the user has asked for another.

    Below a make of the user's the variable is there and empty, and Horovod's build (0.28.1) then starts eight.
    """
    asked = os.environ.get("MAKEFLAGS", "")
    return asked if "-j" in asked else "-j%d" % len(os.sched_getaffinity(0))


def _replace(path: str, old: str, new: str) -> None:
    with open(path) as file:
        text = file.read()
    if text.count(old) != 1:
        sys.exit("%s does not hold %r once; the source of Horovod is not the one that was expected" % (path, old))
    with open(path, "w") as file:
        file.write(text.replace(old, new))


def _pip(*arguments: str, **variables: str) -> None:
    code = subprocess.call([sys.executable, "-I", "-m", "pip", *arguments], env=dict(_variables(), **variables))
    if code:
        sys.exit("pip %s ended with exit code %d" % (arguments[0], code))


def _variables() -> Dict[str, str]:
    """Return the environment for pip, without what the user's shell may say to Horovod's build."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_", "CMAKE_"))}
    return dict(kept, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), *sys.argv[2:])
