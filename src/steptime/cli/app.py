"""The program ``steptime``: its verbs, and what happens when one of them fails."""

import gc
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from steptime import __version__
from steptime.cli.streams import StandardStreams, say, warn
from steptime.cli.unknown_option import meant_by
from steptime.cli.verbs import VerbGroup
from steptime.errors import SteptimeError, Unfinished, UsageError
from steptime.interruption import Interrupted, interruption, keep_end, obeyed
from steptime.umask import restrict

EXIT_DEFECT = 1
"""Python's own for an unhandled exception."""
EXIT_REFUSED = 2
EXIT_READER_LEFT = 141
"""What a shell shows for a program that SIGPIPE ended."""
_LONGEST_NAME = 300
"""Characters of a file's name in a message."""

_UnusableArguments = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")
"""The errors of click, which typer raises for arguments; some versions of typer bring a click of their own."""

app = typer.Typer(
    name="steptime",
    cls=VerbGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        say(f"steptime {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Race distributed-training frameworks on your own machines, with honest error bars."""


def main(began: float) -> None:
    """Run the program as a process; what cannot be printed is told, and never keeps a verb from its work.

    Args:
        began: when the process did, on the monotonic clock, ahead of all imports.
    """
    restrict()
    streams = StandardStreams()
    try:
        code = run_program(began=began)
    except Exception:  # noqa: BLE001 - a defect, told as Python does, but as plain text
        warn(traceback.format_exc().splitlines())
        code = EXIT_DEFECT
    keep_end()
    failure = streams.output_failure()
    if isinstance(failure, BrokenPipeError):  # the reader of the output (head, less) has left
        code = code or EXIT_READER_LEFT
    elif failure is not None:
        _say([f"could not write to standard output: {failure.strerror}"])
        code = code or EXIT_REFUSED
    gc.freeze()  # Python would look once more for cycles as it ends
    sys.exit(code)


def run_program(arguments: Sequence[str] | None = None, *, began: float | None = None) -> int:
    """Run one verb and return its exit code.

    A user's mistake, and what the system refuses, is printed. Whatever else is raised is a defect of steptime.

    Args:
        arguments: behind the name of the program; None takes those of the process.
        began: when the process did; a verb finds it in its context. None: when the verb does.
    """
    try:
        with obeyed():
            return int(app(arguments, standalone_mode=False, obj=began) or 0)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Interrupted as stop:
        return _interrupted(stop, arguments)
    except Exception as error:
        code = _told(error, arguments)
        if code is None:
            raise
        return code


def _told(error: Exception, arguments: Sequence[str] | None) -> int | None:
    """Print a user's mistake, or what the system refuses; return the exit code, or None for anything else."""
    if hidden := interruption():
        return _interrupted(hidden, arguments)
    if isinstance(error, _UnusableArguments):
        return _unusable(error, sys.argv[1:] if arguments is None else arguments)
    if isinstance(error, Unfinished):
        warn([str(error), *getattr(error, "__notes__", [])])
    elif isinstance(error, SteptimeError):
        _say(error.mistakes if isinstance(error, UsageError) else [str(error)])
    elif refusal := _refusal(error):
        _say([refusal])
    else:
        return None
    return error.exit_code if isinstance(error, SteptimeError) else EXIT_REFUSED


def _unusable(error: Exception, arguments: Sequence[str]) -> int:
    """Say what is wrong with the arguments; they may be names of files that a shell found."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ != "NoArgsIsHelpError":  # whose help has been printed
        if context is not None:
            warn([context.get_usage(), f"Try '{context.command_path} {context.help_option_names[0]}' for help."])
        _say([_in_words(error, arguments)])
    return int(getattr(error, "exit_code", EXIT_REFUSED))


def _in_words(error: Exception, arguments: Sequence[str]) -> str:
    """Return the message of an error of click, an unknown option with what it may mean."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if type(error).__name__ != "NoSuchOption" or context is None:
        return str(error.format_message())  # type: ignore[attr-defined]  # as all of click's have
    options = [name for each in context.command.params for name in (*each.opts, *each.secondary_opts)]
    meant = meant_by(option, options, arguments)
    return "; ".join(filter(None, [f"no such option: {option}", meant]))


def _interrupted(stop: Interrupted, arguments: Sequence[str] | None) -> int:
    again = shlex.join(["steptime", *(sys.argv[1:] if arguments is None else arguments)])
    lines = [f"interrupted by {stop}", *getattr(stop, "__notes__", [f"to begin again: {again}"])]
    warn(lines)
    return stop.exit_code


def _refusal(error: Exception) -> str | None:
    """Return what the system refuses in a sentence that names file and cause; None for anything else."""
    if isinstance(error, OSError):
        files = [os.fsdecode(each) for each in (error.filename, error.filename2) if isinstance(each, (str, bytes))]
        cause = error.strerror or str(error) or type(error).__name__
        return f"{' and '.join(map(_shown, files))}: {cause}" if files else cause
    if isinstance(error, UnicodeError):
        return f"text that cannot be encoded or decoded: {error}"
    if isinstance(error, MemoryError):
        return f"not enough memory{f': {error}' if str(error) else ''}"
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return "no home folder: set HOME to one, and STEPTIME_CACHE where environments are to be kept"
    return None


def _shown(file: str) -> str:
    name = file if file.isprintable() else repr(file)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def _say(lines: Sequence[str]) -> None:
    warn([f"error: {lines[0]}"] if len(lines) == 1 else [f"{len(lines)} errors:", *(f"  {line}" for line in lines)])
