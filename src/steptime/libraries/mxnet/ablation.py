"""The ablated step in MXNet: the same symbol and the same engine, with stages left out.

Nothing here waits for the engine more often than a training step does; the engine itself notes when a stage ends.
"""

from typing import Any, Callable, Dict, List, Optional

from steptime.libraries.mxnet.engine import EngineArrays, EngineMarks, can_mark
from steptime.worker.ablated_step import AblatedStep

_BYTES = 4


class MXNetAblation(AblatedStep):
    """Stages that are issued to the engine.

    ``written``
        The arrays that a stage may write last: when all of them are written, the stage is over.
    """

    def __init__(self, bound: Any, update: Any, batches: Any, steps_ahead: int, *, cuda: bool) -> None:
        """Take a session's parts, how many steps the engine may fall behind, and whether on a CUDA device."""
        self._cuda = cuda
        self._bound = bound
        self._update = update
        self._batches = batches
        self._steps_ahead = steps_ahead
        self._issued = 0
        self._transfers: List[List[Any]] = []
        weights, gradients = list(bound.weights.values()), list(bound.gradients.values())
        self.written = weights + gradients + [bound.losses]
        self.marks = ()
        if can_mark():
            exchange = ("exchange",) if update.arriving else ()
            self.marks = ("input", "backward") + exchange + (("update",) if update.updates_here else ())
            self._engine = EngineMarks()
            self._weights, self._gradients = EngineArrays(weights), EngineArrays(gradients)
            self._arriving = EngineArrays(list(update.arriving))
            self._pieces = [
                (name, _BYTES * gradient.size, EngineArrays([gradient]), EngineArrays([arriving]))
                for (name, gradient), arriving in zip(bound.gradients.items(), update.arriving)
            ]

    def stages(self) -> Dict[str, Callable[[], Any]]:
        bound, update = self._bound, self._update
        held = next(self._batches)

        def forward() -> None:
            self._keep_near(bound.losses)
            bound.propagate(*held)

        def backward() -> None:
            self._keep_near(bound.losses)
            bound.backpropagate(*held)

        def local() -> None:
            backward()
            update.apply()

        def exchange() -> None:
            backward()
            update.step()

        def communication() -> None:
            self._keep_near(update.arriving[0])  # the first layer's, which goes first
            update.exchange()

        def h2d() -> None:
            self._keep_near(bound.losses)
            bound.backpropagate(*next(copies))
            update.step()

        stages = {"forward": forward, "backward": backward, "input": self._load}
        if self._cuda:
            copies = self._batches.copies()
            stages["h2d"] = h2d
        if update.updates_here:
            stages["local"] = local
        if update.arriving:
            stages.update(exchange=exchange, communication=communication)
        return stages

    def _keep_near(self, array: Any) -> None:
        """Wait as a training step waits, for an array of the last step."""
        self._issued += 1
        if self._issued % self._steps_ahead == 0:
            array.wait_to_read()

    def _load(self) -> Any:
        batch = next(self._batches)
        for array in batch:  # no clock sees a batch that the engine has yet to make
            array.wait_to_read()
        return batch

    def marked_step(self, mark: Callable[..., None]) -> None:
        # Everything is issued before anything is waited for, so that the engine works as in training, except that it
        # is idle while the first operators of the next step are issued.
        engine, update = self._engine, self._update
        batch = self._load()
        mark("input")
        self._bound.backpropagate(*batch)
        # The forward pass has no mark: the engine lets backward begin before it writes the losses.
        ready = [engine.push(gradient) for _, _, gradient, _ in self._pieces]
        reached = [("backward", engine.push(self._gradients))]
        if update.arriving:
            update.exchange()
            done = [engine.push(arriving) for _, _, _, arriving in self._pieces]
            reached.append(("exchange", engine.push(self._arriving)))
        if update.updates_here:
            update.apply()
            reached.append(("update", engine.push(self._weights)))
        for phase, end in reached:
            end.reached.wait()
            mark(phase)
        if update.arriving:
            self._note(ready, done)

    def _note(self, ready: Any, done: Any) -> None:
        found = []
        for (name, size, _, _), start, end in zip(self._pieces, ready, done):
            end.reached.wait()
            # Threads of the engine note both, and Python may let the later one go first.
            found.append([name, size, start.at_s, max(start.at_s, end.at_s)])
        self._transfers += sorted(found, key=lambda piece: piece[2])

    def transfers(self) -> Optional[List[List[Any]]]:
        found, self._transfers = self._transfers, []
        return found if self._update.arriving else None
