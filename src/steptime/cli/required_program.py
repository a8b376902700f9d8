"""A program that a user's command begins with and that is missing: what the word is instead, and the next step."""

import glob
import os
import re
import shlex
import shutil
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from steptime.errors import EnvironmentFailure
from steptime.launchers.own_command import NOT_FOUND, not_started
from steptime.synonyms import question

_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OF_SHELLS = ("cd", "source", ".", "export", "alias", "module", "ulimit", "set", "exec", "eval", "if", "for", "while")
_TRAINING = ("python", "python3", "torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun")
"""Programs that trainings are started with; a word that is spelled nearly as one of them may be a slip of it."""
_IN_ENVIRONMENT = {"torchrun": "pytorch", "deepspeed": "deepspeed", "horovodrun": "horovod_pytorch"}
"""The environment of steptime whose packages bring a program."""


def require_program(name: str) -> None:
    """Raise LaunchError, with the exit code that a shell would have, where a program of this name is missing."""
    if shutil.which(name) is None:
        raise not_started(name, _why_missing(name), NOT_FOUND)


def _why_missing(name: str) -> str:
    """Return why a word is not a program, by what it is instead, with the next step."""
    place, quoted = Path(name), shlex.quote(name)
    answers = (
        (
            _SETTING.match(name) and re.search(r"\s", name.strip()),
            f"it sets a variable and is a whole command in one word; begin with a shell: bash -c {quoted}",
        ),
        (_SETTING.match(name), f"it sets a variable; write it before steptime, or begin with env: env {quoted} ..."),
        (
            re.search(r"\s", name.strip()),
            f"it is a whole command in one word; leave the quotes out, or begin with a shell: bash -c {quoted}",
        ),
        (place.suffix == ".py" and place.is_file(), f"it is a script; begin with its interpreter, as python {quoted}"),
        (
            place.is_file(),
            f"it is a file that may not be run, or is not on the PATH; begin with what runs it, as bash {quoted}",
        ),
        (place.is_dir(), "it is a folder; begin with a program, as python train.py"),
        (name in _OF_SHELLS, f"it is a word of the shell; begin with one: bash -c '{name} ... && python train.py'"),
        (
            name.startswith("-"),
            "it is an option; put steptime's options before --, and a program after it",
        ),
    )
    for is_that, answer in answers:
        if is_that:
            return answer
    return f"no such program on the PATH; {_where_it_is(name)}" if place.name == name else "no such program"


def _where_it_is(name: str) -> str:
    """Return how to come by the program: by its right spelling, by an environment of steptime that has it, or else."""
    near = [program for program in get_close_matches(name, _TRAINING, n=1) if program != name and shutil.which(program)]
    if near:
        return question(near)
    own = f"activate its environment, or write as .venv/bin/{name}"
    from steptime.environments.cache import cache_folder, environments_folder  # noqa: PLC0415 - a program that is here

    with suppress(EnvironmentFailure):  # no home folder
        folders = environments_folder(cache_folder())
        if made := sorted(
            path.parent for path in folders.glob(f"*/bin/{glob.escape(name)}") if os.access(path, os.X_OK)
        ):
            return f'{own}; an environment of steptime has it: PATH={shlex.quote(str(made[0]))}:"$PATH" steptime ...'
    if name in _IN_ENVIRONMENT:
        return f"{own}; or make one that has it: steptime env create {_IN_ENVIRONMENT[name]}"
    return own
