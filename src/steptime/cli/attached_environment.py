"""``steptime attach --environment``: the variables for those who do not own the command line."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from steptime.cli.streams import say, warn
from steptime.errors import UsageError, choices_message

Variables = Mapping[str, str]
_HOOK, _RECORDS = "PYTHONPATH", "STEPTIME_ATTACH"


def _shell(variables: Variables, _command: Sequence[str]) -> str:
    kept = '"${PYTHONPATH:+:$PYTHONPATH}"'
    return "\n".join(
        f"export {name}={shlex.quote(value)}{kept if name == _HOOK else ''}" for name, value in variables.items()
    )


def _yaml(variables: Variables, _command: Sequence[str]) -> str:
    return "\n".join(f"- name: {name}\n  value: {_json(value)}" for name, value in variables.items())


def _json(value: str | Variables | Sequence[str], _command: Sequence[str] = ()) -> str:
    from steptime.results.jsonlines import json_text

    return json_text(value)


def _docker(variables: Variables, _command: Sequence[str]) -> str:
    """Return options of ``docker run``: the hook is mounted read-only, the folder of records writable."""
    words = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    hook, records = variables[_HOOK], variables[_RECORDS]
    return shlex.join([*words, "--volume", f"{hook}:{hook}:ro", "--volume", f"{records}:{records}"])


def _trainjob(variables: Variables, command: Sequence[str]) -> str:
    """Return a manifest: pods mount what the folder lies on, the hook read-only."""
    from steptime.cli.kubernetes import NEVER_RUN, Mount, PodJob, manifest_text, trainjob

    root = Path(variables[_HOOK])
    while not root.is_mount():
        root = root.parent
    below = {name: str(Path(variables[name]).relative_to(root)) for name in (_HOOK, _RECORDS)}
    mounts = [
        Mount(variables[_HOOK], below[_HOOK], read_only=True),
        Mount(variables[_RECORDS], below[_RECORDS]),
    ]
    comments = [
        f"A training on two nodes of Kubeflow Trainer 2.3. {NEVER_RUN}",
        f"Set the image, and the claim whose root is {root} here; then: kubectl apply -f FILE",
    ]
    return manifest_text(comments, trainjob(PodJob("train", command, variables, mounts, hosts=2)))


_FORMS: Mapping[str, Callable[[Variables, Sequence[str]], str]] = {
    "sh": _shell,
    "yaml": _yaml,
    "json": _json,
    "docker": _docker,
    "trainjob": _trainjob,
}
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
    words = command or (["torchrun", "train.py"] if form == "trainjob" else ["script"])
    folder = free_folder(named_folder(words, output))
    say(_FORMS[form](AttachedCommand(words, folder, None, flops=False).leave_hook(), words))
    warn(
        [
            f"The hook is in {folder / HOOK}; mount it read-only where processes start, and {folder} writable.",
            f"When they have trained: {shlex.join(['steptime', 'report', str(folder)])}",
        ]
    )
