"""A new framework or workload from a template: ``examples/numpy_ring`` or ``own_module`` under another name.

The examples are installed with steptime, so that what the documentation shows, what tests run and what is written for
somebody's own are the same files.
"""

import keyword
import re
import sys
from pathlib import Path

import steptime
from steptime.catalog.manifest import broken_frameworks, load_manifests
from steptime.catalog.workloads.table import LIBRARY
from steptime.errors import UsageError, choices_message

_INSTALLED = Path(steptime.__file__).parent / "framework_template"
_INSTALLED_MODULE = _INSTALLED.with_name("workload_template")
_CHECKOUT = Path(steptime.__file__).parents[2] / "examples" / "numpy_ring"
"""Where the template is in a copy of the repository, which is installed without being copied."""
_EXAMPLE = "numpy_ring"
_MODULE = "my_module"
_FOLDERS_OF_KINDS = {"torch": "", "jax": "jax", "keras": "keras"}
_WORKLOAD = "tiny_mlp"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)\s*==", re.MULTILINE)
_MODULES = {"pillow": "pil", "scikit-learn": "sklearn", "pyyaml": "yaml", "protobuf": "google"}
"""Modules whose name is not that of their package."""
_OF_SCRIPTS = {
    "accelerate",
    "datasets",
    "evaluate",
    "lightning",
    "peft",
    "ray",
    "timm",
    "torchvision",
    "transformers",
    "trl",
}
"""What scripts import beside a framework."""
_SUFFIXES = {".md", ".py", ".toml", ".txt", ".yaml"}


def template_files() -> list[Path]:
    """Return the template's files, relative to its folder."""
    folder = _folder()
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in _SUFFIXES]
    return sorted(path.relative_to(folder) for path in files)


def write_framework(name: str, folder: Path) -> list[Path]:
    """Write the package of a framework called ``name`` into ``folder`` and return its files.

    Args:
        name: of the framework, a Python identifier that no framework has yet.
        folder: does not exist, or is empty.

    Raises UsageError for such a name or folder, OSError when files cannot be written.
    """
    _require_name(name, "a framework")
    if name in load_manifests() or name in broken_frameworks():
        message = f"there is a framework {name!r} already (steptime list frameworks); choose another name"
        raise UsageError(message)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder} exists already; name a folder that does not"
        raise UsageError(message)
    written = []
    for path in template_files():
        target = folder / _renamed(str(path), name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_renamed((_folder() / path).read_text("utf-8"), name), encoding="utf-8")
        written.append(target)
    return written


def write_workload(name: str, folder: Path, framework: str = "pytorch") -> list[Path]:
    """Write a user's module called ``name`` and the study that races it into ``folder``; return both files.

    Raises UsageError for such a name or framework and where one of the files is there, OSError when they cannot be
    written.
    """
    kinds = {each: kind for each, manifest in load_manifests().items() if (kind := manifest.own_modules)}
    if framework not in kinds:
        raise UsageError(choices_message("framework for modules of your own", framework, kinds))
    _require_name(name, "a workload")
    if name in LIBRARY:
        message = f"there is a workload {name!r} already (steptime list workloads); choose another name"
        raise UsageError(message)
    if name in sys.stdlib_module_names | _library_modules():
        message = f"{name}.py would hide the library {name!r} from every script in its folder; choose another name"
        raise UsageError(message)
    template = _INSTALLED_MODULE if _INSTALLED_MODULE.is_dir() else _CHECKOUT.parent / "own_module"
    template /= _FOLDERS_OF_KINDS[kinds[framework]]
    targets = {folder / f"{name}{suffix}": template / f"{_MODULE}{suffix}" for suffix in (".py", ".yaml")}
    for target in targets:
        if target.exists():
            message = f"{target} exists already; choose another name, or another folder with -o"
            raise UsageError(message)
    folder.mkdir(parents=True, exist_ok=True)
    for target, original in targets.items():
        text = re.sub("(?m)^frameworks: .*$", f"frameworks: {framework}", original.read_text("utf-8"))
        target.write_text(text.replace(_MODULE, name), encoding="utf-8")
    return list(targets)


def _library_modules() -> set[str]:
    """Return what trainings import: packages in the environments of all frameworks, under names of modules."""
    locks = (lock for manifest in load_manifests().values() for lock in manifest.folder.glob("*.lock"))
    names = (name for lock in locks for name in _PINNED.findall(lock.read_text("utf-8")))
    return {_MODULES.get(name.lower(), name.lower().replace("-", "_")) for name in names} | _OF_SCRIPTS


def _require_name(name: str, what: str) -> None:
    if not (name.isascii() and name.isidentifier() and name.islower()) or keyword.iskeyword(name):
        message = f"{name!r} cannot name {what}: use lower-case letters, digits and '_', beginning with a letter"
        raise UsageError(message)


_OF_PACKAGE = re.compile(rf'{_EXAMPLE}(?=[./](?:framework|{_WORKLOAD}|__init__)\b|"\])')
"""The example's name where it is that of the Python package."""


def _renamed(text: str, name: str) -> str:
    """Return a path or a text of the example for ``name``; its package may not hide the one that it is about."""
    text = _OF_PACKAGE.sub(f"steptime_{name}", text)
    text = text.replace(_WORKLOAD, f"{name}_mlp").replace(_WORKLOAD.upper(), f"{name}_mlp".upper())
    return text.replace(_EXAMPLE, name).replace(_EXAMPLE.replace("_", "-"), f"steptime-{name.replace('_', '-')}")


def _folder() -> Path:
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
