"""Replaced functions and methods of libraries, which can fail without the caller's notice.

The caller's own call is made exactly once and outside of any ``try`` of ours. What we do before and after it may raise:
then the patch removes itself, and the record has a line about it.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import sysconfig
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from types import CodeType, FrameType, ModuleType, TracebackType

# Before a call: its arguments; returns a mark, or None if the call is not measured.
Before = Callable[[Any, Any], Any]
# After it: the mark, and whether the call returned.
After = Callable[[Any, bool], None]
Report = Callable[[str, BaseException], None]
Function = TypeVar("Function", bound=Callable[..., Any])

_FOLDER = __file__[: -len("patches.py")]
_INTERNAL = _FOLDER + "importlib._bootstrap: patches.py"  # by both words frames are internal

# Folders of installed libraries, which hold a folder for each.
PACKAGES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)

reports: list[Report] = []  # who writes the line about a fault


def report(hook: str, error: BaseException) -> None:
    """Have the line written about ``hook``, which failed with ``error`` and does nothing more."""
    try:
        for write in reports:
            write(hook, error)
    except Exception:  # the script goes on without the line
        del reports[:]


def call_all(listeners: list[Callable[..., None]], *arguments: int) -> None:
    """Call ``listeners``; one that fails is called no more."""
    for listener in list(listeners):
        try:
            listener(*arguments)
        except Exception as error:  # noqa: PERF203 - each may fail without the others
            if raised_by_signal_handler(error):
                raise
            listeners.remove(listener)
            report(getattr(listener, "__qualname__", "a listener"), error)


def never() -> bool:
    """Return that no compiler is tracing, for libraries that have none."""
    return False


class Patch:
    """A replaced attribute of a class or module; passes calls on and does nothing else once it is off."""

    __slots__ = ("inherited", "label", "name", "on", "original", "owner", "replacement")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name
        self.label = f"{getattr(owner, '__name__', owner)}.{name}"
        self.original = getattr(owner, name)
        self.inherited = name not in vars(owner)
        self.replacement: Any = None
        self.on = True

    def put(self, replacement: Any) -> None:
        """Put ``replacement`` in place of the attribute."""
        self.replacement = replacement
        setattr(self.owner, self.name, replacement)

    def remove(self) -> None:
        """Switch off, and put the original back unless somebody has replaced ours since."""
        self.on = False
        if vars(self.owner).get(self.name) is not self.replacement:
            return
        if self.inherited:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)

    def fault(self, error: Exception) -> None:
        """Remove the patch after ``error`` in our half; raises it again if a signal handler of the user raised it."""
        if raised_by_signal_handler(error):
            raise error
        try:
            self.remove()
        except Exception:  # switched off is enough
            self.on = False
        report(self.label, error)


class CallMark:
    """A mark that is given what the call returned."""

    __slots__ = ("given", "result")

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.result: Any = None


def unnoticed(function: Function) -> Function:
    """Return ``function`` so that `warnings` and `logging` count no frame of it, nor of what it defines.

    They pass over frames of the import system (CPython: `warnings._is_internal_frame`), so that a library's warning
    names the line of the user that it means.
    """
    code: Any = function.__code__
    inner = [each.replace(co_filename=_INTERNAL) if hasattr(each, "co_code") else each for each in code.co_consts]
    function.__code__ = code.replace(co_consts=tuple(inner), co_filename=_INTERNAL)
    return function


@unnoticed
def measured(
    patch: Patch, inner: Callable[..., Any], before: Before, after: After, compiling: Callable[[], bool] = never
) -> Callable[..., Any]:
    """Return a function that calls ``before`` and ``after`` around ``inner`` while ``patch`` is on."""

    def call(*args: Any, **kwargs: Any) -> Any:
        mark = None
        if patch.on and not compiling():
            try:
                mark = before(args, kwargs)
            except Exception as error:
                patch.fault(error)
        if mark is None:
            return inner(*args, **kwargs)
        returned = False
        try:
            result = inner(*args, **kwargs)
            returned = True
            if mark.__class__ is CallMark:
                mark.result = result
            return result
        finally:
            try:
                after(mark, returned)
            except Exception as error:
                patch.fault(error)

    return call


def measure(owner: Any, name: str, before: Before, after: After, compiling: Callable[[], bool] = never) -> Patch:
    """Replace ``owner.name`` by a function that calls ``before`` and ``after`` around the original."""
    patch = Patch(owner, name)
    patch.put(named_after(patch.original, measured(patch, patch.original, before, after, compiling)))
    return patch


def named_after(original: Any, replacement: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``replacement`` with the name, the documentation and the signature of ``original``."""
    try:
        return functools.wraps(original)(replacement)
    except (TypeError, AttributeError):  # methods of extension modules can have names that are not text
        return replacement


def raised_by_signal_handler(error: BaseException) -> bool:
    """Return whether a signal handler of the user raised ``error`` while our code ran: then it is the user's."""
    handlers = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            handler = inspect.unwrap(handler)
            handlers.add(getattr(getattr(handler, "__func__", handler), "__code__", None))
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def place_of(error: BaseException) -> str:
    """Return "FILE:LINE" of where ``error`` was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "?"


def is_ours(code: CodeType) -> bool:
    """Return whether ``code`` belongs to this package."""
    return code.co_filename.startswith(_FOLDER)


def clean_tracebacks() -> None:
    """Leave our frames out of the traceback that the interpreter prints when a script fails."""
    inner = sys.excepthook

    @functools.wraps(inner)
    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        try:
            trace = _without_ours(trace)
            _clean(error, set())
        except Exception:  # a traceback with our frames is better than none
            trace = error.__traceback__
        return inner(kind, error, trace)

    sys.excepthook = excepthook


def _clean(error: BaseException | None, seen: set[int]) -> None:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    error.__traceback__ = _without_ours(error.__traceback__)
    _clean(error.__cause__, seen)
    _clean(error.__context__, seen)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and is_ours(trace.tb_frame.f_code):
        trace = trace.tb_next
    here = trace
    while here is not None:
        after = here.tb_next
        while after is not None and is_ours(after.tb_frame.f_code):
            after = after.tb_next
        here.tb_next = after
        here = after
    return trace


def is_user_frame(frame: FrameType, libraries: tuple[str, ...]) -> bool:
    """Return whether ``frame`` is code of the user's: neither ours nor below a folder of ``libraries``.

    What was made from text has no file: it is the user's in the main module alone (``python -c``).
    """
    name = frame.f_code.co_filename
    if name.startswith("<"):
        return frame.f_globals.get("__name__") == "__main__"
    return is_user_file(name, libraries)


def is_user_file(name: str, libraries: tuple[str, ...]) -> bool:
    """Return whether a file of code is neither ours nor below a folder of ``libraries``."""
    return not (name.startswith(_FOLDER) or any(part in name for part in libraries))


def library_folders() -> tuple[str, ...]:
    """Return the folders of Python's own and installed libraries, as parts of the names of their files."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(folder + os.sep for folder in folders if folder) + PACKAGES


def code_objects(module: ModuleType) -> list[CodeType]:
    """Return the code of all functions and methods that ``module`` defines, with those defined inside them."""
    found: list[CodeType] = []
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        for member in vars(value).values() if isinstance(value, type) else (value,):
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if code is not None:
                _collect(code, found)
    return found


def _collect(code: CodeType, found: list[CodeType]) -> None:
    found.append(code)
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            _collect(constant, found)
