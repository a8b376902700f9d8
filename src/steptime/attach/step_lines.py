"""The lines of steps, written several at once: a write for each would be a fifth of what recording it costs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .record_file import encoded, now

if TYPE_CHECKING:
    from .account import Apart, TimeSums
    from .record_file import ProcessRecord

# Steps beyond the limit of the file are summed, at most so many nanoseconds of them in a line; at most one in so many
# keeps its own.
SUMMED_NS = 1_000_000_000
FEWEST = 1 << 20
# Behind the first steps, lines wait for those of further steps: so long at first, then this part of the time since the
# first step, and so long at most; and at most so many wait.
AT_ONCE, TOGETHER_NS, PART, LONGEST_NS, MOST_TOGETHER = 64, 250_000_000, 10, 1_000_000_000, 256
# Lines about amounts that are not known, of a script whose steps take turns.
MOST_REASONS = 32
# A thread looks as often whether lines wait for a step that does not come: ever more seldom while steps come.
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.25, 2.0
JOINED_WITHIN_S = 1.0


class StepLines:
    """Writes the lines of steps, several at once; those beyond the limit it adds to sums, one line a second at most."""

    def __init__(self, file: ProcessRecord) -> None:
        self.file = file
        self.every = 1  # steps whose number is a multiple of it keep their line
        self.sums: dict[str, Any] | None = None
        self.waiting: list[Any] = []  # dictionaries, or `UsualStep`
        self.latest: dict[str, Any] | None = None
        self.unknown: dict[str, str] = {}  # why amounts of steps are not known, as written
        self.reasons = 0  # that were
        self.texts: list[str] = []
        self.size = 0  # of these
        self.begun = self.due = 0
        self.busy, self.stopping = threading.Lock(), threading.Lock()
        self.thread: threading.Thread | None = None
        self.ended = False  # whether no thread may be started, so that no line may wait
        file.ahead = self.write

    def add(self, line: dict[str, Any]) -> None:
        """Take ``line``, and write all that wait if that is due."""
        self.latest = line
        self.waiting.append(line)
        at = now()
        if at >= self.due or line["number"] < AT_ONCE or len(self.waiting) >= MOST_TOGETHER or self.ended:
            self.write_at(at)
        elif self.thread is None:
            self._start()

    def write_at(self, at: int) -> None:
        """Write what waits; what follows waits for a while: so much a process that is killed loses."""
        self.write()
        self.begun = self.begun or at
        self.due = at + min(LONGEST_NS, max(TOGETHER_NS, (at - self.begun) // PART))

    def note_unknown(self, amount: str, reason: str) -> None:
        """Write why an ``amount`` of steps is not known, once for each reason in turn."""
        if self.unknown.get(amount) != reason and self.reasons < MOST_REASONS:
            self.unknown[amount] = reason
            self.reasons += 1
            self.file.write({"kind": "unseen", "phases": [amount], "reason": reason})

    def _start(self) -> None:
        self.stopping.acquire()  # until the end
        self.thread = threading.Thread(target=self._watch, daemon=True, name="steptime attach: steps")
        try:
            self.thread.start()
        except RuntimeError:  # the system lets the process have no further one
            self.ended = True
            self.write()

    def _watch(self) -> None:
        """Write what waits for a step that does not come: the script does something else, hangs or will be killed."""
        wait_s = SHORTEST_LOOK_S
        while not self.stopping.acquire(timeout=wait_s):
            wait_s = min(LONGEST_LOOK_S, 2 * wait_s)
            if self.waiting and now() >= self.due:
                self.write()
                wait_s = SHORTEST_LOOK_S

    def write(self) -> None:
        """Write the lines that wait, or sum them; nothing while a signal handler or a thread finds it at work."""
        if not self.waiting or not self.busy.acquire(blocking=False):
            return
        try:
            while self.waiting:  # one is removed only when it is among the texts: a handler may raise anywhere here
                self._take(self.waiting[0])
                del self.waiting[0]
            self._write_texts()
        finally:
            self.busy.release()

    def _take(self, step: Any) -> None:
        whole = step.__class__ is dict
        if (step["number"] if whole else step.number) % self.every == 0:
            text = encoded(step) if whole else step.text()
            if self.file.affords(self.size + len(text)):
                if self.sums is not None:
                    self._end_sums()
                self._add_text(text)
                if self.every > 1 and self.file.affords(self.size + len(text) * 63):
                    self.every //= 2
                return
            self.every = min(FEWEST, self.every * 2)
        self._sum(step if whole else step.line())

    def _write_texts(self) -> None:
        if self.texts:
            text, self.texts, self.size = "\n".join(self.texts), [], 0
            self.file.write_text(text)

    def _add_text(self, text: str) -> None:
        self.texts.append(text)
        self.size += len(text)

    def _end_sums(self) -> None:
        self._add_text(encoded(self.sums))
        self.sums = None

    def _sum(self, line: dict[str, Any]) -> None:
        if self.sums is None:
            self.sums = {
                "kind": "steps",
                "first": line["number"],
                "last": line["number"],
                "begin_ns": line["begin_ns"],
                "duration_ns": 0,
                "micro_steps": 0,
                "regions": {},
                "gaps": {},
                "apart_ns": 0,
            }
        sums = self.sums
        sums["last"] = line["number"]
        sums["duration_ns"] += line["duration_ns"]
        sums["micro_steps"] += line["micro_steps"]
        for table in ("regions", "gaps"):
            into = sums[table]
            for name, duration in line[table].items():
                into[name] = into.get(name, 0) + duration
        apart = line.get("apart")
        if apart:
            sums["apart_ns"] += apart["end_ns"] - apart["begin_ns"]
        if sums["duration_ns"] >= SUMMED_NS and self.file.affords(self.size + len(encoded(sums))):
            self._end_sums()

    def add_outside(self, account: TimeSums, apart: Apart | None, *, before: bool) -> None:
        """Write how long evaluations and checkpoints ``before`` the first step took, or else behind the last."""
        save_ns = account.regions.get("save", 0) + (apart.account.regions.get("save", 0) if apart else 0)
        evaluation_ns = apart.evaluation_ns if apart else 0
        if save_ns or evaluation_ns:
            line = {"kind": "outside", "before": before, "evaluation_ns": evaluation_ns, "save_ns": save_ns}
            self.file.write(line, opens=False)

    def flush(self) -> None:
        """Write what waits and what is summed, and end the thread: no line follows."""
        self.ended = True
        if self.thread is not None and self.thread.is_alive():
            self.stopping.release()
            self.thread.join(JOINED_WITHIN_S)
        self.write()
        if self.sums is not None:
            self._end_sums()
            self._write_texts()
