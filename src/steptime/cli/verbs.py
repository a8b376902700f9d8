"""The verbs, one row each, and the group that imports the module of one when it is called."""

from collections import UserDict
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer.main
from typer.core import TyperCommand, TyperGroup

Command = Any
"""One of click, or of the click that some versions of typer bring."""


@dataclass(frozen=True)
class Verb:
    """What the list of verbs has of one, and where it is defined."""

    name: str
    place: str
    """Module of this package and name in it: a function, or a Typer with verbs below this one."""
    summary: str
    """The first paragraph of its help."""
    before_command: bool = False
    """Whether another program's command follows its own options."""

    def listed(self) -> TyperCommand:
        """Return a command that has name and summary alone."""
        return TyperCommand(self.name, help=self.summary)

    def loaded(self) -> Command:
        """Return the command, whose module is imported now."""
        module, _, name = self.place.partition(".")
        defined = getattr(import_module(f"steptime.cli.{module}"), name)
        holder = typer.Typer()
        if isinstance(defined, typer.Typer):
            holder.add_typer(defined, name=self.name, help=self.summary)
        else:
            settings = {"allow_interspersed_args": False} if self.before_command else None
            holder.command(self.name, context_settings=settings)(defined)
        return typer.main.get_group(holder).commands[self.name]


VERBS = (
    Verb(
        "demo",
        "demo.demo",
        "Show the recorded results of a real race: ranking, breakdown and prediction. Nothing is measured or "
        "installed.",
    ),
    Verb("doctor", "env.doctor", "Show what this machine has, what is missing, and the command that fixes it."),
    Verb("list", "list.list_things", "List what can be named in a study."),
    Verb(
        "check",
        "frameworks.check",
        "Check a framework: its files, what each strategy computes, its threads, its breakdown, its loaders, its end.",
    ),
    Verb("run", "run.run", "Measure what a study asks for; run it again on the same folder to resume."),
    Verb(
        "attach",
        "attach.attach",
        "Run your own training command as it is, and end with where its time went.",
        before_command=True,
    ),
    Verb(
        "sweep",
        "sweep.sweep",
        "Run your own command with several numbers of workers, and forecast how far more of them help.",
        before_command=True,
    ),
    Verb(
        "submit",
        "submit.submit",
        "Write the batch script of a study, show it, and submit it to Slurm: one job, in which all launches take "
        "turns.",
    ),
    Verb("status", "status.status", "Show what a study is doing and how many launches and trainings each trial has."),
    Verb("report", "report.report", "Show who is fastest, with intervals, the equivalence check and what failed."),
    Verb(
        "compare",
        "compare.compare",
        "Compare two measurements: faster, slower, undecided, or no difference larger than launches would have shown.",
    ),
    Verb(
        "advise",
        "advise.advise",
        "Rank changes by the gain that each rule predicts; rerun with --verify to continue a verification.",
    ),
    Verb(
        "export",
        "export.export",
        "Write tables of trials, steps and epochs for notebooks, traces for Perfetto, or what other tools read.",
    ),
    Verb(
        "import",
        "imports.import_files",
        "Make a results folder of what other programs logged or traced, which report, compare and export read.",
    ),
    Verb(
        "serve",
        "page_server.serve",
        "Show the report in a browser of this machine, live and read-only, until Ctrl-C.",
    ),
    Verb(
        "net",
        "net.net",
        "Time messages over the back ends of frameworks, check the sums, and fit latencies and bandwidth.",
    ),
    Verb(
        "peak",
        "net.peak",
        "Measure how quickly devices multiply matrices, while nothing else runs; reports then have MFU.",
    ),
    Verb(
        "fit",
        "fit.fit",
        "Fit each phase of a step to what was measured, and say how wrong the fit is on points that it did not see.",
    ),
    Verb(
        "predict",
        "predict.predict",
        "Predict step time, throughput and phases, with an interval of 90 %, or say which measurement is missing.",
    ),
    Verb(
        "evidence",
        "evidence.evidence",
        "Predict the large worker counts of measured curves from the small ones, and score it beside null models.",
    ),
    Verb("frameworks", "frameworks.app", "Create a framework of your own."),
    Verb("workloads", "frameworks.workloads_app", "Create a workload of your own."),
    Verb("env", "env.app", "Create, list, lock and remove the environments that frameworks run in."),
    Verb("data", "data.app", "Make the built-in datasets from pictures that ship in Python packages."),
)


class LoadedVerbs(UserDict[str, Any]):
    """Commands by name; one is loaded when it is looked up, and names alone load nothing."""

    def __getitem__(self, name: str) -> Command:
        """Return the command of a verb."""
        verb: Verb = self.data[name]
        return verb.loaded()


class VerbGroup(TyperGroup):
    """The group of all verbs: help and completion list them without their modules."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of typer's group
        super().__init__(**settings)
        self.commands = LoadedVerbs({verb.name: verb for verb in VERBS})

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002 - typer passes it
        """Return the names of all verbs."""
        return list(self.commands)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]  # noqa: ARG002 - likewise
        """Return a command with the name and summary of a verb."""
        return next((verb.listed() for verb in VERBS if verb.name == cmd_name), None)

    def resolve_command(  # type: ignore[override]
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, Command, list[str]]:
        """Return the verb that is called, whose module is imported now."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, self.commands[name] if name else None, rest
