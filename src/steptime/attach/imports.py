"""Calls our function for a library once the user's script has imported it, by a finder that steps aside at once."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

# The module of a library: the module here and its function, which gets the module. Those of submodules are called after
# that of their library.
TABLE = {
    "torch": ("pytorch.passes", "install"),
    "torch.distributed._functional_collectives": ("pytorch.collectives", "install_functional"),
    "torch.distributed.autograd": ("pytorch.extensions", "install_distributed_autograd"),
    "torch.distributed.optim.optimizer": ("pytorch.extensions", "install_distributed_optimizer"),
    "torch.distributed.checkpoint.state_dict_saver": ("pytorch.extensions", "install_checkpoints"),
    "torch.nn.parallel.distributed": ("pytorch.collectives", "install_data_parallel"),
    "deepspeed.runtime.engine": ("pytorch.extensions", "install_deepspeed"),
    "horovod.torch.mpi_ops": ("pytorch.extensions", "install_horovod"),
    "horovod.torch.functions": ("pytorch.extensions", "install_horovod_functions"),
    "nvidia.dali.plugin.pytorch": ("pytorch.extensions", "install_dali"),
    "safetensors.torch": ("pytorch.extensions", "install_safetensors"),
    "ray.data.iterator": ("timed_batches", "install_ray"),
    "grain._src.python.dataset.dataset": ("timed_batches", "install_grain"),
    "webdataset.pipeline": ("timed_batches", "install_webdataset"),
    "jax": ("compiled.jax_functions", "install"),
    "keras.src.backend.jax.trainer": ("timed_batches", "install_keras"),
    "keras.src.backend.tensorflow.trainer": ("compiled.tensorflow_flops", "install_keras"),
    "keras.src.backend.torch.trainer": ("pytorch.extensions", "install_keras"),
    "tensorflow.python.data.ops.iterator_ops": ("compiled.tensorflow_functions", "install_iterators"),
    "tensorflow.python.distribute.input_lib": ("compiled.tensorflow_functions", "install_distributed_iterators"),
    "tensorflow.python.eager.backprop": ("compiled.tensorflow_eager", "install_tapes"),
    "keras.src.models.model": ("compiled.tensorflow_eager", "install_models"),
    "keras.src.optimizers.base_optimizer": ("compiled.tensorflow_eager", "install_optimizers"),
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": (
        "compiled.tensorflow_functions",
        "install_functions",
    ),
    "orbax.checkpoint": ("checkpoints", "install_orbax"),
    "orbax.checkpoint.experimental.v1._src.saving.saving": ("checkpoints", "install_orbax_functions"),
    "flax.training.checkpoints": ("checkpoints", "install_flax"),
    "equinox._serialisation": ("checkpoints", "install_equinox"),
    "keras.src.saving.saving_api": ("checkpoints", "install_keras"),
    "tensorflow.python.checkpoint.checkpoint": ("checkpoints", "install_tensorflow"),
    "tensorflow.python.saved_model.save": ("checkpoints", "install_saved_model"),
    "chainer": ("trainers", "install_chainer"),
    "chainermn": ("trainers", "install_chainermn"),
    "mxnet": ("trainers", "install_mxnet"),
    "paddle": ("trainers", "install_paddle"),
}
_installed: set[str] = set()


def install(entry: str) -> None:
    """Hook the libraries that are imported, and the others when they are; the second call does nothing."""
    if not any(type(finder) is Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder(entry))
        atexit.register(_ended)
    for name in TABLE:
        if name in sys.modules and "." not in name:
            imported(name, sys.modules[name], entry)


def _ended() -> None:
    error = getattr(sys, "last_value", None)
    if error is not None:
        importlib.import_module(".failures", __package__).write_failure()
    if type(error) is KeyboardInterrupt:
        # The interpreter notes in a mark that a Ctrl-C ended it, and then ends by SIGINT. What is made from text, as
        # named tuples of modules that we import are, takes the mark away, and this sets it again.
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102 - a fixed text


def torch_entry() -> None:
    """Hook torch, which calls this at the end of its own import (entry points of the group `torch.backends`)."""
    if not os.environ.get("STEPTIME_ATTACH"):
        return
    try:
        install("torch.backends")
        imported("torch", sys.modules["torch"], "torch.backends")
    except Exception as error:  # torch would not import
        with contextlib.suppress(Exception):  # there may be no standard error, or no reader of it
            sys.stderr.write(f"steptime attach: torch is not seen in process {os.getpid()} ({error!r})\n")


def imported(name: str, module: ModuleType, entry: str) -> None:
    """Call the function for ``name``, once and after that of its library, which then calls those of its submodules."""
    library = name.split(".", maxsplit=1)[0]
    if name in _installed or (library != name and library in TABLE and library not in _installed):
        return
    _installed.add(name)
    # Not above: every Python that starts reads this file, and few train.
    from . import patches, process

    file, function = TABLE[name]
    try:
        process.recorder(entry)
        getattr(importlib.import_module("." + file, __package__), function)(module)
        process.seen(name)
    except Exception as error:  # the library works without us
        patches.report("import of " + name, error)
    for other in TABLE:
        if other.startswith(name + ".") and other in sys.modules:
            imported(other, sys.modules[other], entry)


class Finder:
    """Finds the modules of ``TABLE`` as the other finders do, and has their loader call us afterwards."""

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self.busy: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the specification of ``name`` with a prepared loader, None for all that is not in ``TABLE``."""
        del path, target
        if name not in TABLE or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                self._prepare(name, spec.loader)
        except (ImportError, AttributeError, TypeError, ValueError):
            return None  # the other finders say what is wrong, or the loader lets nothing be set on it
        finally:
            self.busy.discard(name)
        return spec

    def _prepare(self, name: str, loader: Any) -> None:
        inner = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the loader is as it was before anything of the module runs
            inner(module)
            imported(name, module, self.entry)

        loader.exec_module = exec_module
