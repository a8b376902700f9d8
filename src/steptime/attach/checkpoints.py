"""Calls of libraries beside PyTorch that save a checkpoint: orbax, flax, equinox, Keras and TensorFlow.

What only asks whether to save is none, as that of a `CheckpointManager` in every step.
"""

from __future__ import annotations

from typing import Any

from .library_calls import region_of

KERAS = ("save_model", "save_weights")
ORBAX_FUNCTIONS = ("save", "save_checkpointables", "save_async", "save_checkpointables_async", "save_pytree")


def install_orbax(module: Any) -> None:
    """Patch what writes, which a `CheckpointManager` calls where it saves; an asynchronous one returns ahead."""
    for name in ("Checkpointer", "AsyncCheckpointer"):
        kind = getattr(module, name, None)
        if kind is not None and "save" in vars(kind):
            region_of(kind, "save", "save")


def install_orbax_functions(module: Any) -> None:
    """Patch the functions of orbax' newer interface, before it is made of them."""
    _patch_functions(module, ORBAX_FUNCTIONS)


def install_flax(module: Any) -> None:
    """Patch flax' own checkpoints, of which older ones are written without orbax."""
    _patch_functions(module, ("save_checkpoint", "save_checkpoint_multiprocess"))


def install_equinox(module: Any) -> None:
    """Patch what writes the leaves of a tree, as of a model."""
    _patch_functions(module, ("tree_serialise_leaves",))


def install_keras(module: Any) -> None:
    """Patch the saving of models and weights, which callbacks of Keras call as well."""
    _patch_functions(module, KERAS)


def install_tensorflow(module: Any) -> None:
    """Patch `tf.train.Checkpoint`, which its manager calls as well."""
    for method in ("save", "write", "_write"):
        region_of(module.Checkpoint, method, "save")


def install_saved_model(module: Any) -> None:
    """Patch `tf.saved_model.save`."""
    _patch_functions(module, ("save",))


def _patch_functions(module: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if hasattr(module, name):
            region_of(module, name, "save")
