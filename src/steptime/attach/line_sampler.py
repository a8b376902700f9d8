"""Names the user's lines on which the training thread is: by a thread that ends before the script."""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import TYPE_CHECKING, Callable

from .patches import PACKAGES, is_user_frame, library_folders
from .record_file import now

if TYPE_CHECKING:
    from types import FrameType

    from .recorder import Recorder

EVERY_S = 0.02
# The distance of samples grows to this part of the time since the first, and at most to so much.
PART, MOST_S = 20, 1.0
WRITTEN_EVERY_NS = 2_000_000_000
# In mode `auto` it begins after so many steps if gaps are more than this part of their time.
STEPS = 20
SKIPPED = 5
GAPS = 0.1
HELD_SAMPLES = 100_000
# Libraries that only compute what they are asked for: the line that asks is enough.
NUMERICAL = {"numpy", "scipy", "pandas", "PIL", "cv2"}
JOINED_WITHIN_S = 1.0
# Of the library that calls a module the function is named, of torch only if no other does.
REPLACEABLE_CALLERS = {"", "torch"}
MODULE_CALLS = __file__[: -len("line_sampler.py")] + os.path.join("pytorch", "passes.py")


class LineSampler:
    """Counts, for each region and gap of ``recorder``, the innermost line of the user's own code.

    Where that calls a library, the line goes with the innermost function of this library that is at work.
    """

    def __init__(self, recorder: Recorder, mode: str) -> None:
        self.recorder = recorder
        self.mode = mode
        self.libraries = library_folders()
        self.here = os.getcwd() + os.sep
        self.files: dict[str, tuple[bool, str]] = {}  # whether one is the user's, and its library
        self.begin_again()

    def begin_again(self) -> None:
        """Forget all; a forked child has no thread."""
        self.thread: threading.Thread | None = None
        self.stopping = threading.Lock()  # free when the thread is to end
        self.samples: list[str] = []  # lines seen in the gap or update that goes on, whose name is known at its end
        self.requested: list[str] = []  # likewise in a request to a loader, which may be an evaluation's
        self.places: dict[str, dict[str, int]] = {}
        self.first = 0
        self.every_s = EVERY_S
        self.began = self.cost = 0
        self.written_at = now()
        self.time = self.gaps = 0
        self.steps = 0

    def step_closed(self, number: int, duration: int, gaps: int) -> None:
        """Hear that the step before ``number`` lasted ``duration``, of it ``gaps`` in code that lines explain."""
        if self.thread is None:
            self._consider(number, duration, gaps)
        elif now() - self.written_at > WRITTEN_EVERY_NS:
            self.write(number)

    def _consider(self, number: int, duration: int, gaps: int) -> None:
        if self.mode == "off":
            return
        self.steps += 1
        if self.steps > SKIPPED:
            self.time += duration
            self.gaps += gaps
        if self.mode == "on" or (self.steps >= STEPS and self.gaps > GAPS * self.time):
            self.start(number)
        elif self.steps >= STEPS:
            self.mode = "off"

    def start(self, number: int) -> None:
        """Start the thread; step ``number`` is the first that it sees whole."""
        self.first, self.written_at = number, now()
        self.began = self.written_at
        self.stopping.acquire()
        self.thread = threading.Thread(target=self._look, daemon=True, name="steptime attach: lines")
        self.thread.start()

    def _look(self) -> None:
        try:
            while not self.stopping.acquire(timeout=self.every_s):
                begin = now()
                recorder, usual = self.recorder, self.recorder.usual
                place = usual.place() if usual is not None else ""
                frame = sys._current_frames().get(recorder.thread)
                called, function = "", ""
                asked = not place and recorder.inside("nograd")
                if asked:
                    frame = caller_of_module(frame)
                while frame is not None:
                    is_own, package = self._file_of(frame)
                    if is_own:
                        break
                    if package and package != called and not (asked and called not in REPLACEABLE_CALLERS):
                        called, function = package, frame.f_code.co_name
                    frame = frame.f_back
                if frame is not None:
                    code = frame.f_code
                    file = code.co_filename
                    file = file[len(self.here) :] if file.startswith(self.here) else file
                    library = f", {called}: {function}" if called else ""
                    self._count(f"{file}:{frame.f_lineno} {code.co_name}{library}", place)
                del frame
                self.cost += now() - begin
        except Exception as error:  # without lines the record is still whole
            self.mode = f"ended by {error!r}"

    def _file_of(self, frame: FrameType) -> tuple[bool, str]:
        """Return whether ``frame`` is code of the user's, and of which library it is else."""
        name = frame.f_code.co_filename
        known = self.files.get(name)
        if known is None:
            known = is_user_frame(frame, self.libraries), package_of(name)
            if not name.startswith("<"):  # what was made from text may be anybody's
                self.files[name] = known
        return known

    def _count(self, line: str, place: str) -> None:
        if place:
            self._add(place, line)
            return
        try:
            name = self.recorder.stack[-1][0]
        except IndexError:
            name = "gap"
        if name in {"gap", "update"}:  # which may turn out to be a closure's code
            if len(self.samples) < HELD_SAMPLES:
                self.samples.append(line)
            return
        if name == "input":
            if len(self.requested) < HELD_SAMPLES:
                self.requested.append(line)
            return
        evaluated = name == "nograd" and self.recorder.between  # which is not the step's
        self._add("evaluation" if evaluated else name, line)

    def _add(self, place: str, line: str) -> None:
        counts = self.places.setdefault(place, {})
        counts[line] = counts.get(line, 0) + 1

    def assign(self, gap: str) -> None:
        """Count what was seen in the gap that has just ended and is named ``gap``."""
        seen, self.samples = self.samples, []
        self._add_all(seen, gap)

    def lines_of_request(self) -> Callable[[str], None] | None:
        """Return what counts the lines seen in the request that has just ended for a place; None without any."""
        seen, self.requested = self.requested, []
        return functools.partial(self._add_all, seen) if seen else None

    def _add_all(self, seen: list[str], place: str) -> None:
        for line in seen:
            self._add(place, line)

    def write(self, number: int) -> None:
        """Write what was counted before step ``number``."""
        places, self.places = self.places, {}
        if places:
            self.recorder.file.write(
                {
                    "kind": "lines",
                    "every_ns": int(self.every_s * 1e9),
                    "first": self.first,
                    "last": number - 1,
                    "places": {place: dict(counts) for place, counts in places.items()},
                    "cost_ns": self.cost,
                }
            )
        self.first, self.cost, self.written_at = number, 0, now()
        self.every_s = min(MOST_S, max(EVERY_S, (self.written_at - self.began) * 1e-9 / PART))

    def stop(self) -> None:
        """End the thread and wait for it: one that still runs while the interpreter ends can abort the process."""
        if self.thread is not None and self.thread.is_alive():
            self.stopping.release()
            self.thread.join(JOINED_WITHIN_S)
        if self.recorder.begin is not None:
            self.write(self.recorder.number)


def caller_of_module(frame: FrameType | None) -> FrameType | None:
    """Return the frame that calls the outermost module at work, or ``frame`` where none is."""
    caller, outer = frame, frame
    while outer is not None:
        if outer.f_code.co_filename == MODULE_CALLS and outer.f_back is not None:
            caller = outer.f_back
        outer = outer.f_back
    return caller


def package_of(file: str) -> str:
    """Return the installed library that ``file`` belongs to, "" of Python's own and of one that is numerical alone."""
    for folder in PACKAGES:
        _, found, rest = file.rpartition(folder)
        if found:
            name = rest.split(os.sep, 1)[0]
            return "" if name in NUMERICAL else name.split(".", 1)[0]
    return ""
