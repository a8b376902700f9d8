"""The words of a user's command: which of them is the script."""

from collections.abc import Sequence

_LAUNCHING = ("torch.distributed", "accelerate", "deepspeed", "horovod", "lightning", "mpi4py", "coverage", "cProfile")
"""Modules that run a script, which follows them (``python -m torch.distributed.run train.py``)."""


def script_of(words: Sequence[str]) -> tuple[int, str]:
    """Return the place and the name of the script in a command; of the program itself where it has none."""
    for index, word in enumerate(words):
        if word.endswith(".py"):
            return index, word
    for index, word in enumerate(words[:-1]):
        if word in {"-m", "--module"} and not words[index + 1].startswith(_LAUNCHING):
            return index + 1, words[index + 1]
    return 0, words[0]
