"""The core writes results through ``plain_file`` alone: no other file of it opens, makes, renames or removes one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import steptime

SOURCE = Path(steptime.__file__).parent
PACKAGES = (
    "cli",
    "report",
    "document",
    "runner",
    "equivalence",
    "execution",
    "expansion",
    "predict",
    "fitting",
    "curves",
    "simulate",
    "model",
    "launchers",
    "results",
    "statistics",
    "validity",
    "attached",
    "analysis",
    "exports",
)
"""That come near a results folder; environments and datasets lie in the cache."""
METHODS = {"write_text", "write_bytes", "touch", "mkdir", "makedirs", "unlink", "rmdir", "symlink_to", "hardlink_to"}
METHODS |= {"rename", "copytree", "copy2", "copyfile", "move", "rmtree", "mkdtemp", "chmod"}
ELSEWHERE = {
    "cli/verified_advice.py": "writes a study into a temporary folder",
    "cli/attach.py": "writes a line to the terminal",
    "cli/data.py": "makes the folder above a stored form of a dataset, where its user wants it",
    "cli/streams.py": "opens the null device",
    "launchers/fork_servers.py": "makes sockets in a temporary folder",
    "launchers/emulation/control_groups.py": "makes control groups of the kernel",
    "launchers/emulation/verification.py": "sets a parameter of the kernel",
    "launchers/emulation/packet_relay.py": "opens a device of the network",
    "launchers/hosts/host_agent.py": "makes a folder of its own in the temporary one of its host",
    "launchers/hosts/local_copies.py": "copies environments into a folder of its own on the host's disk",
    "launchers/hosts/probe.py": "leaves a mark in the cache",
    "launchers/namespace_entry.py": "enters a control group of the kernel",
    "launchers/namespaces.py": "writes the maps of a user namespace",
    "launchers/unprivileged.py": "makes a folder in a mount of its own",
    "runner/durations.py": "keeps durations of earlier runs in the cache",
    "equivalence/check.py": "keeps results of checks in the cache",
    "runner/extending/check.py": "writes a study into a temporary folder, and launches from it",
    "runner/extending/killed_worker.py": "makes the run folder of a worker that is to be killed",
    "runner/extending/template.py": "writes a new package where its user wants it",
}
"""Files that write somewhere else, and where."""


def writes(path: Path) -> Iterator[str]:
    """Yield every call of a file by which something in a file system is changed."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        opens = name == "open" and any(set(text) <= set("rwabx+t") and set(text) & set("wax+") for text in texts)
        flagged = name == "open" and any(flag in ast.unparse(node) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
        within = ast.unparse(node.func).endswith(("folder.open", "PlainFolder(self._path.parent).open"))
        replaces = name == "replace" and len(node.args) == 1 and not node.keywords
        if name in METHODS or opens or replaces or (flagged and not within):
            yield f"{path.relative_to(SOURCE)}:{node.lineno}: {ast.unparse(node)[:60]}"


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_else_of_the_core_writes_a_file(package):
    found = [
        each
        for path in sorted((SOURCE / package).rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in ELSEWHERE
        for each in writes(path)
    ]

    assert found == []


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_file_that_writes_somewhere_else_still_does(name):
    assert list(writes(SOURCE / name))
