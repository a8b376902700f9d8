"""Batches made by helper processes before they are needed."""

import contextlib
import itertools
import multiprocessing

from steptime.worker.tether import die_with_parent

PER_HELPER = 2
"""How many entries each helper holds."""


def with_helpers(make, plan, processes):
    """Return an iterator of ``make(entry)`` for every entry of ``plan``, in its order, and what ends its helpers.

    Args:
        make: a picklable function.
        plan: an endless iterator.
        processes: how many processes make ahead; with 0 this one does, when asked.
    """
    if not processes:
        return map(make, plan), lambda: None
    helpers = [_Helper(make) for _ in range(processes)]

    def close():
        for helper in helpers:
            helper.close()

    return _in_turn(helpers, plan), close


def _in_turn(helpers, plan):
    """Give each entry to the next helper, and take the results in the same order."""
    for helper, entry in zip(helpers * PER_HELPER, plan):
        helper.begin(entry)
    for helper in itertools.cycle(helpers):
        done = helper.finished()
        helper.begin(next(plan))
        yield done


class _Helper(object):
    """A process that makes one entry after the other; it ends when this process does."""

    def __init__(self, make):
        # JAX has threads, in whose middle a process must not be forked.
        context = multiprocessing.get_context("spawn")
        self._connection, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(make, far_end), daemon=True)
        self._process.start()
        far_end.close()  # so that a helper's death closes the connection

    def begin(self, entry):
        self._connection.send(entry)

    def finished(self):
        """Return what was made of the oldest entry, or raise what was raised."""
        try:
            done = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError("a helper of the loader died with code %s" % self._process.exitcode) from None
        if isinstance(done, Exception):
            raise done
        return done

    def close(self):
        self._connection.close()
        self._process.terminate()


def _serve(make, connection):
    die_with_parent()
    with contextlib.suppress(EOFError, OSError):  # training is over
        while True:
            entry = connection.recv()
            try:
                done = make(entry)
            except Exception as error:
                done = error
            connection.send(done)
