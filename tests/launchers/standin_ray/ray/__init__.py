"""A stand-in for Ray, whose nodes are addresses of this machine and whose actors are threads of the driver.

``$STANDIN_RAY`` is JSON: ``nodes``, each with ``address``, ``name``, ``port``, ``processors`` and ``alive``;
``refusal``, with which it refuses drivers; ``dies``, a file: once it exists, actors on the last node are dead.
"""

import json
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from . import exceptions

__version__ = "2.60.0"
_SETTINGS = json.loads(os.environ.get("STANDIN_RAY", "{}"))


def init(address: str, **_: object) -> None:
    """Refuse, or do nothing."""
    if refusal := _SETTINGS.get("refusal"):
        raise RuntimeError(refusal)


def nodes() -> list[dict[str, object]]:
    """Return all nodes as Ray does."""
    return [
        {
            "NodeManagerAddress": node["address"],
            "NodeManagerHostname": node["name"],
            "NodeManagerPort": node["port"],
            "Alive": node["alive"],
            "Resources": {"CPU": node["processors"]} if node["processors"] else {},
        }
        for node in _SETTINGS["nodes"]
    ]


def get_runtime_context() -> SimpleNamespace:
    """Return what has the address of the cluster."""
    return SimpleNamespace(gcs_address="127.0.0.1:6379")


def method(concurrency_group: str):
    """Return a decorator that notes the group."""

    def noted(function):
        function.group = concurrency_group
        return function

    return noted


def remote(concurrency_groups: dict[str, int]):
    """Return what makes actors of a class."""
    return lambda kind: SimpleNamespace(options=lambda **where: SimpleNamespace(remote=lambda: _Actor(kind(), where)))


def get(answer: "Future[object]", timeout: float | None = None) -> object:
    """Wait for a call; raise RayError where the actor has died meanwhile."""
    ends = time.monotonic() + (timeout or 1e9)
    while not answer.done() and time.monotonic() < ends:
        if answer.on_last and Path(_SETTINGS.get("dies", "/nowhere")).exists():
            message = "The actor died unexpectedly before finishing this task.\nits node has died"
            raise exceptions.RayError(message)
        time.sleep(0.01)
    return answer.result(0)


class _Actor:
    def __init__(self, program, where) -> None:
        index = where["scheduling_strategy"].placement_group_bundle_index if "scheduling_strategy" in where else 0
        self._on_last = index == len(_SETTINGS["nodes"]) - 1
        self._program = program
        self._threads: dict[str, ThreadPoolExecutor] = {}

    def __getattr__(self, name: str) -> SimpleNamespace:
        called = getattr(self._program, name)
        threads = self._threads.setdefault(getattr(called, "group", ""), ThreadPoolExecutor(1))

        def call(*arguments: object) -> "Future[object]":
            answer = threads.submit(called, *arguments)
            answer.on_last = self._on_last and name != "start"  # it dies while its program runs
            return answer

        return SimpleNamespace(remote=call)
