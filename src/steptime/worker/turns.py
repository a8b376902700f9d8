"""Steps that the workers of a launch take one after the other, each when the one before has finished.

By turns alone a worker knows how many gradients of all workers are in weights that servers hold.
"""

import os
from typing import Any, Callable, List

from steptime.worker.process_context import ProcessContext
from steptime.worker.session import Session
from steptime.worker.shared_file import await_file, open_whole

_PATIENCE_S = 600.0


def take_turns(
    session: Session, context: ProcessContext, turns: int, note: Callable[[], Any], first_noted: int = 0
) -> List[Any]:
    """Take ``turns`` steps in turn with the other workers; return what ``note`` returns behind each.

    Nothing is noted behind turns ahead of ``first_noted``, which are counted from 0.
    """
    noted = []
    _leave_sign(context, "ready-%d" % context.rank)
    for rank in range(context.workers):
        _await_sign(context, "ready-%d" % rank)
    for turn in range(turns):
        number = turn * context.workers + context.rank
        if number:
            _await_sign(context, "turn-%d" % (number - 1))
        session.step()
        session.wait()
        if turn >= first_noted:
            noted.append(note())
        _leave_sign(context, "turn-%d" % number)
    _await_sign(context, "turn-%d" % (turns * context.workers - 1))  # who leaves early may take weights along
    return noted


def _leave_sign(context: ProcessContext, name: str) -> None:
    with open_whole(os.path.join(context.folder, name + ".sign")):
        pass


def _await_sign(context: ProcessContext, name: str) -> None:
    path = os.path.join(context.folder, name + ".sign")
    if not await_file(path, _PATIENCE_S):
        raise RuntimeError("no worker left %s within %g s; its records say why" % (path, _PATIENCE_S))
