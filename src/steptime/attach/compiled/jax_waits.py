"""When the device of JAX had finished a step: a thread waits for a result, without the interpreter's lock."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any

from ..record_file import now

ENDED_WITHIN_S = 5.0


class DeviceWaits:
    """The waiting of a process, whose thread ends with it."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.pid = 0
        recorder.at_step.append(self.write)
        recorder.at_end.append(self.stop)

    def add(self, number: int, result: Any, begin: int, function: Any) -> None:
        """Wait for ``result`` of step ``number``, which was asked for at ``begin``."""
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
            self.done: list[tuple[int, int, int]] = []
            self.thread = threading.Thread(target=self._wait, daemon=True, name="steptime attach: device")
            self.thread.start()
        self.asked.put((number, result, begin, function))

    def _wait(self) -> None:
        last = 0
        while True:
            asked = self.asked.get()
            if asked is None:
                return
            number, result, begin, function = asked
            try:
                result.block_until_ready()
                end = now()
                self.done.append((number, max(begin, last), end))
                last = end
            except Exception:  # the next step took this result over: another one is tried from now on
                function.ends = function.ends[1:]
            del asked, result

    def write(self, number: int) -> None:
        """Write the steps before ``number`` that the device has finished since."""
        if self.pid != os.getpid():
            return
        done, self.done = self.done, []
        spans: dict[int, list[int]] = {}
        for step, begin, end in done:
            span = spans.setdefault(step, [0, begin, end])
            span[0] += end - begin
            span[2] = end
        for step, (busy, begin, end) in spans.items():
            if step >= number:  # its other functions may go on
                self.done += [each for each in done if each[0] == step]
                continue
            times = {"regions": {"call": busy}, "span_ns": end - begin, "begin_ns": begin, "end_ns": end}
            self.recorder.file.write({"kind": "device", "step": step, **times})

    def stop(self) -> None:
        """End the thread and wait for it: one that still runs while the interpreter ends can abort the process."""
        if self.pid != os.getpid():
            return
        self.asked.put(None)
        self.thread.join(ENDED_WITHIN_S)
        self.write(self.recorder.number + 1)
