"""The program ``steptime``: its verbs, and what happens when one of them fails."""

import os
import sys
from typing import Annotated

import typer

from steptime import __version__
from steptime.cli import check, data, doctor, env, evidence, export, fit, frameworks, net, predict, report, run, status
from steptime.cli import list as listing

EXIT_INTERRUPTED = 130

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
app.command()(status.status)
app.command()(report.report)
app.command()(export.export)
app.command()(net.net)
app.command()(fit.fit)
app.command()(predict.predict)
app.command()(evidence.evidence)


def main() -> None:
    """Run the program; a user's mistake ends with a message and an exit code, never with a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of our output (head, less) has left; that is not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        from steptime.errors import SteptimeError

        if not isinstance(error, SteptimeError):
            raise
        _say(error)
        sys.exit(error.exit_code)


def _say(error: Exception) -> None:
    from steptime.errors import UsageError

    lines = error.mistakes if isinstance(error, UsageError) else [str(error)]
    label = "error" if len(lines) == 1 else f"{len(lines)} errors"
    sys.stderr.write(f"{label}:\n" if len(lines) > 1 else f"{label}: ")
    for line in lines:
        sys.stderr.write(f"  {line}\n" if len(lines) > 1 else f"{line}\n")
