"""Everything steptime raises on purpose.

::

    SteptimeError                 (exit code 2 unless said otherwise)
    ├── UsageError                a mistake in what the user wrote; holds all mistakes found
    │   ├── StudyError            in a study file, with file, line and key
    │   └── WorkloadError         in the graph or the parameters of a workload
    ├── FileError                 a file that the user named is not text, too long, or cannot be opened
    ├── DatasetError              a folder without images, a broken image
    ├── EnvironmentFailure        a framework's environment cannot be made or used
    ├── MissingExtra              an optional library is not installed (``steptime.extras``)
    ├── PluginError               another distribution's framework, workload, … cannot be used
    ├── StoreError                a result folder that is damaged, unwritable or of another schema
    │   └── FolderInUse           one that another process writes to
    ├── LaunchError               processes could not be started at all (exit code 3)
    └── Unfinished                a run cannot go on here, and goes on where it was elsewhere or later (exit code 4)

A framework that fails while training raises nothing: its failure is a result, kept in the records.
"""

from collections.abc import Iterable, Sequence

from steptime.synonyms import hint


class SteptimeError(Exception):
    """Base of all errors that a user can act on; the message gives the next step."""

    exit_code = 2


class UsageError(SteptimeError):
    """The user's input is wrong; ``mistakes`` lists every mistake, one sentence or more each."""

    def __init__(self, mistakes: str | Sequence[str]) -> None:
        self.mistakes = [mistakes] if isinstance(mistakes, str) else list(mistakes)
        super().__init__("\n".join(self.mistakes))


class StudyError(UsageError):
    """A study file, or an override of one, is wrong."""


class WorkloadError(UsageError):
    """A workload cannot be built from what was asked."""


class FileError(SteptimeError):
    """A file that the user named cannot be read; ``reason`` is what is said behind its name, and its ``line``."""

    def __init__(self, path: object, reason: str, line: int | None = None) -> None:
        super().__init__(f"{path}: {reason}" if line is None else f"{path}:{line}: {reason}")
        self.reason = reason
        self.line = line


class DatasetError(SteptimeError):
    """A dataset cannot be read."""


class EnvironmentFailure(SteptimeError):  # noqa: N818 - EnvironmentError is a builtin name
    """A framework's environment cannot be made or used on this machine; ``fix`` is the command that would help."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


class PluginError(SteptimeError):
    """What another distribution brings by an entry point cannot be used; the message names it and the cause."""


class StoreError(SteptimeError):
    """A result folder cannot be used."""


class FolderInUse(StoreError):  # noqa: N818 - it says what is, not that something broke
    """Another process holds the lock of a result folder."""


class LaunchError(SteptimeError):
    """Processes could not be started."""

    exit_code = 3


class Unfinished(SteptimeError):  # noqa: N818 - the run has not failed
    """A run stops before its study is done, and keeps everything; the same command resumes it.

    ``for_time`` says that it is out of time, and not of hosts.
    """

    exit_code = 4

    def __init__(self, message: str, *, for_time: bool = False) -> None:
        super().__init__(message)
        self.for_time = for_time


def choices_message(what: str, value: str, choices: Iterable[str]) -> str:
    """Say that ``value`` is not a ``what``, name what it may mean, and list all choices."""
    names = sorted(choices)
    meant = hint(value, names)
    return f"unknown {what} {value!r}{meant and f'; {meant}'} (choices: {', '.join(names) or 'none'})"


def error_line(error: Exception) -> str:
    """Return any error in one line: the message that steptime wrote for its user, of others behind its kind."""
    text = " ".join(str(error).split())
    return text if isinstance(error, SteptimeError) else f"{type(error).__name__}: {text}"
