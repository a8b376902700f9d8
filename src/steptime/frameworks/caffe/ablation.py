"""The ablated step in Caffe: the calls of ``Solver::Step``, one by one, with stages left out.

Here the reduction gets other communicators in place of MPI's: one that sends nothing, for stages in which gradients
stay on the worker, and one that notes when each sum is complete, for marked steps.
"""

import time
from typing import Any

from steptime.worker.session import AblatedStep


class CaffeAblation(AblatedStep):
    """``reduction`` is None if one worker trains alone."""

    def __init__(self, solver, loader, reduction):
        self._solver = solver
        self._loader = loader
        self._reduction: Any = reduction if reduction is not None and reduction.world.size > 1 else None
        self._gradients = [gradient for _, gradient in solver.gradients()]
        exchange = ("exchange",) if self._reduction is not None else ()
        self.marks = ("input", "forward", "backward") + exchange + ("update",)
        if self._reduction is not None:
            self._silent = _SilentCommunicator()
            self._world = self._reduction.world
            self._noting = _NotingCommunicator(
                self._world, {_address(array): name for name, array in solver.gradients()}
            )

    def stages(self):
        # All stages compute on the batch that the last step took.
        solver, reduction = self._solver, self._reduction

        def backward():
            solver.forward()
            self._backward_alone()

        def local():
            backward()
            solver.update()

        def exchange():
            solver.forward()
            solver.backward()
            reduction.finish()
            solver.update()

        stages = {"forward": solver.forward, "backward": backward, "local": local, "input": self._load}
        if reduction is not None:
            stages.update(exchange=exchange, communication=lambda: reduction.whole(self._gradients[::-1]))
        return stages

    def _backward_alone(self):
        """Compute gradients; where their sums would start beside that, everything happens but the sums."""
        if self._reduction is None:
            self._solver.backward()
            return
        self._reduction.world = self._silent
        self._solver.backward()
        self._reduction.world = self._world

    def _load(self):
        self._loader.fill()
        self._solver.take_batch()

    def marked_step(self, mark):
        solver, reduction = self._solver, self._reduction
        self._load()
        mark("input")
        solver.forward()
        mark("forward")
        if reduction is None:
            solver.backward()
            mark("backward")
        else:
            self._exchange_noted(mark)
        solver.update()
        mark("update")

    def _exchange_noted(self, mark):
        reduction = self._reduction
        usual = reduction.world, reduction.wait_all
        reduction.world, reduction.wait_all = self._noting, _wait_one_by_one
        self._solver.backward()
        mark("backward")
        reduction.finish()
        mark("exchange")
        reduction.world, reduction.wait_all = usual

    def transfers(self):
        return self._noting.taken() if self._reduction is not None else None


class _SilentCommunicator(object):
    """Takes the place of MPI's communicator where a worker's gradients stay its own."""

    def Iallreduce(self, *_):  # noqa: N802 - MPI's name
        return self

    def Test(self):  # noqa: N802
        return True


class _NotingCommunicator(object):
    """MPI's communicator, which notes what is summed and when the sum is complete."""

    def __init__(self, world, names):
        self._world = world
        self._names = names
        self._pieces = []

    def Allreduce(self, in_place, values):  # noqa: N802
        piece = self._begun("all", values)
        self._world.Allreduce(in_place, values)
        piece.append(time.monotonic())

    def Iallreduce(self, in_place, values):  # noqa: N802
        piece = self._begun(self._names[_address(values)], values)
        return _NotingRequest(self._world.Iallreduce(in_place, values), piece)

    def _begun(self, name, values):
        piece = [name, values.nbytes, time.monotonic()]
        self._pieces.append(piece)
        return piece

    def taken(self):
        """Return the pieces since the last call."""
        found, self._pieces = self._pieces, []
        return found


class _NotingRequest(object):
    """One of MPI's requests, which notes when it was first known to be complete."""

    def __init__(self, request, piece):
        self._request = request
        self._piece = piece

    def Test(self):  # noqa: N802
        done = self._request.Test()
        if done:
            self._piece.append(time.monotonic())
        return done

    def Wait(self):  # noqa: N802
        self._request.Wait()
        self._piece.append(time.monotonic())


def _wait_one_by_one(requests):
    for request in requests:
        request.Wait()


def _address(array):
    return array.__array_interface__["data"][0]
