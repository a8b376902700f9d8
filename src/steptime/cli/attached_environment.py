"""``steptime attach --environment``: the variables for those who do not own the command line."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from steptime.cli.streams import say, warn
from steptime.errors import UsageError, choices_message

Variables = Mapping[str, str]


def _shell(variables: Variables) -> str:
    kept = '"${PYTHONPATH:+:$PYTHONPATH}"'
    return "\n".join(
        f"export {name}={shlex.quote(value)}{kept if name == 'PYTHONPATH' else ''}" for name, value in variables.items()
    )


def _yaml(variables: Variables) -> str:
    return "\n".join(f"- name: {name}\n  value: {_json(value)}" for name, value in variables.items())


def _json(value: str | Variables) -> str:
    from steptime.results.jsonlines import json_text

    return json_text(value)


def _docker(variables: Variables) -> str:
    """Return options of ``docker run``: the hook is mounted read-only, the folder of records writable."""
    words = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    hook, records = variables["PYTHONPATH"], variables["STEPTIME_ATTACH"]
    return shlex.join([*words, "--volume", f"{hook}:{hook}:ro", "--volume", f"{records}:{records}"])


_FORMS: Mapping[str, Callable[[Variables], str]] = {"sh": _shell, "yaml": _yaml, "json": _json, "docker": _docker}
FORMS = tuple(_FORMS)


def print_environment(command: Sequence[str], output: Path | None, form: str) -> None:
    """Make a results folder that keeps its hook, and print the variables by which processes write to it.

    Args:
        command: that somebody will start, if it is known.
        output: the folder that a user named.
        form: of ``FORMS``.

    Raises StoreError where no folder can be made, and UsageError for another form.
    """
    from steptime.runner.attached_folder import free_folder, named_folder
    from steptime.runner.attached_run import HOOK, AttachedCommand

    if form not in _FORMS:
        raise UsageError(choices_message("format", form, FORMS))
    words = command or ["script"]
    folder = free_folder(named_folder(words, output))
    say(_FORMS[form](AttachedCommand(words, folder, None, flops=False).leave_hook()))
    warn(
        [
            f"The hook is in {folder / HOOK}; mount it read-only where processes start, and {folder} writable.",
            f"When they have trained: {shlex.join(['steptime', 'report', str(folder)])}",
        ]
    )
