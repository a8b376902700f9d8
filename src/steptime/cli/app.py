"""The program ``steptime``: its verbs, and what happens when one of them fails."""

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from steptime import __version__
from steptime.cli import (
    check,
    data,
    doctor,
    env,
    evidence,
    export,
    fit,
    frameworks,
    net,
    predict,
    report,
    run,
    status,
    submit,
)
from steptime.cli import list as listing
from steptime.interruption import Interrupted, interruption, obeyed
from steptime.report.plain_text import plain_text

EXIT_REFUSED = 2
EXIT_READER_LEFT = 141
"""What a shell shows for a program that SIGPIPE ended."""
_NO_WRITERS = 0o022
"""Of what steptime and its processes make, nothing is writable by a group or everyone, whatever the shell's umask: they
could put code into what its user runs."""
_LONGEST_NAME = 300
"""Characters of a file's name in a message."""

app = typer.Typer(
    name="steptime",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"steptime {__version__}\n")
        raise typer.Exit


@app.callback()
def _program(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Race distributed-training frameworks on your own machines, with honest error bars."""


app.command()(doctor.doctor)
app.command("list")(listing.list_things)
app.add_typer(frameworks.app, name="frameworks")
app.add_typer(env.app, name="env")
app.add_typer(data.app, name="data")
app.command()(check.check)
app.command()(run.run)
app.command()(submit.submit)
app.command()(status.status)
app.command()(report.report)
app.command()(export.export)
app.command()(net.net)
app.command()(fit.fit)
app.command()(predict.predict)
app.command()(evidence.evidence)


def main() -> None:
    """Run the program as a process; what cannot be printed is told, and never keeps a verb from its work."""
    from steptime.cli.streams import StandardStreams

    os.umask(os.umask(_NO_WRITERS) | _NO_WRITERS)
    streams = StandardStreams()
    code = run_program()
    failure = streams.output_failure()
    if isinstance(failure, BrokenPipeError):  # the reader of the output (head, less) has left
        code = code or EXIT_READER_LEFT
    elif failure is not None:
        _say([f"could not write to standard output: {failure.strerror}"])
        code = code or EXIT_REFUSED
    sys.exit(code)


def run_program(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code.

    A user's mistake, and what the system refuses, is told in words. Whatever else is raised is a defect of steptime.

    Args:
        arguments: behind the name of the program; None takes those of the process.
    """
    try:
        with obeyed():
            app(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Interrupted as stop:
        return _interrupted(stop, arguments)
    except Exception as error:
        from steptime.errors import SteptimeError, Unfinished, UsageError

        if hidden := interruption():
            return _interrupted(hidden, arguments)
        if isinstance(error, SteptimeError):
            if isinstance(error, Unfinished):
                _write([str(error), *getattr(error, "__notes__", [])])
            else:
                _say(error.mistakes if isinstance(error, UsageError) else [str(error)])
            return error.exit_code
        refusal = _refusal(error)
        if refusal is None:
            raise
        _say([refusal])
        return EXIT_REFUSED
    return 0


def _interrupted(stop: Interrupted, arguments: Sequence[str] | None) -> int:
    again = shlex.join(["steptime", *(sys.argv[1:] if arguments is None else arguments)])
    lines = [f"interrupted by {stop}", *getattr(stop, "__notes__", [f"to begin again: {again}"])]
    _write(lines)
    return stop.exit_code


def _write(lines: Sequence[str]) -> None:
    sys.stderr.write("".join(f"{plain_text(line)}\n" for line in lines))


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
        return "there is no home folder: set HOME to one, and STEPTIME_CACHE where environments are to be kept"
    return None


def _shown(file: str) -> str:
    name = file if file.isprintable() else repr(file)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def _say(lines: Sequence[str]) -> None:
    lines = [plain_text(line) for line in lines]
    label = "error" if len(lines) == 1 else f"{len(lines)} errors"
    sys.stderr.write(f"{label}:\n" if len(lines) > 1 else f"{label}: ")
    for line in lines:
        sys.stderr.write(f"  {line}\n" if len(lines) > 1 else f"{line}\n")
