"""Write what the functions of torch that steptime's CUDA paths call take, as the locked wheels for CUDA have it.

::

    pip download --no-deps torch==2.10.0
    python benchmarks/gpu/torch_signatures.py torch-2.10.0-….whl …

Read from the wheels' Python, so that no build is installed; ``torch_signatures.json`` has the parameters of every
function by the version of the wheel and its digest, and tests hold them against the locks and the calls.
"""

import ast
import hashlib
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")
SOURCE = Path(__file__).parents[2] / "src/steptime"
FILES = {
    "torch/cuda/__init__.py": "torch.cuda",
    "torch/cuda/graphs.py": "torch.cuda",
    "torch/cuda/memory.py": "torch.cuda",
    "torch/cuda/nccl.py": "torch.cuda.nccl",
    "torch/cuda/random.py": "torch.cuda",
    "torch/cuda/streams.py": "torch.cuda",
    "torch/amp/grad_scaler.py": "torch.amp",
    "torch/distributed/distributed_c10d.py": "torch.distributed",
}
"""Where functions are defined, and the module by which they are called."""
CLASSES = {"CUDAGraph", "Event", "GradScaler", "Stream"}


def parameters(arguments: ast.arguments) -> str:
    """Return parameters as in a call of ``lambda``: without types, and with None for each default."""
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if each is not None:
            each.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
    return ast.unparse(arguments)


def functions(source: str, module: str) -> dict[str, str]:
    """Return the parameters of the functions of a file, and of the methods of ``CLASSES``; of an overload the last."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            found[f"{module}.{node.name}"] = parameters(node.args)
        elif isinstance(node, ast.ClassDef) and node.name in CLASSES:
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            found |= {f"{module}.{node.name}.{each.name}": parameters(each.args) for each in methods}
    return found


def called() -> set[str]:
    """Return the functions and classes of ``torch.cuda`` and ``torch.amp`` that the worker half names."""
    found = {"torch.distributed.init_process_group"}
    for path in SOURCE.rglob("*.py"):
        names = re.findall(r"\b(?:torch|self)\.(?:cuda|amp)\.[\w.]+", path.read_text())
        found |= {re.sub(r"^self", "torch", name) for name in names}
    return found - {"torch.cuda.amp"}  # a module, whose `GradScaler` is a class derived from that of `torch.amp`


def read(wheel: Path) -> dict[str, Any]:
    """Return the digest of a wheel, and the parameters of what is ``called`` and of its public methods."""
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    found: dict[str, str] = {}
    with zipfile.ZipFile(wheel) as opened:
        for file, module in FILES.items():
            found |= functions(opened.read(file).decode(), module)
    wanted = called()
    kept = {name: taken for name, taken in sorted(found.items()) if {name, name.rpartition(".")[0]} & wanted}
    public = {name: taken for name, taken in kept.items() if "._" not in name or name.endswith(("__new__", "__init__"))}
    return {"sha256": digest, "functions": public}


def main(wheels: list[Path]) -> None:
    """Write the table anew for the versions of ``wheels``, and keep the others."""
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    table |= {wheel.name.split("-")[1]: read(wheel) for wheel in wheels}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(list(map(Path, sys.argv[1:])))
