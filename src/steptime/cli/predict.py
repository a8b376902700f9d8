"""``steptime predict``: what an unmeasured configuration would do."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steptime.predict.predict import Prediction, PredictionInterval


def _complete_keys(incomplete: str) -> list[str]:
    from steptime.model.devices import DEVICES
    from steptime.predict.query import KEYS
    from steptime.study.strategies import STRATEGIES
    from steptime.workloads.table import LIBRARY

    values = {"strategy": STRATEGIES, "workload": LIBRARY, "device": ["cpu", "cuda", *DEVICES]}
    key, equals, _ = incomplete.partition("=")
    if equals:
        return [each for value in values.get(key, ()) if (each := f"{key}={value}").startswith(incomplete)]
    return [f"{key}=" for key in KEYS if key.startswith(incomplete)]


def predict(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="What `steptime fit` wrote.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY.PATH=VALUE]...",
            help="What is to be different, such as interconnect.bandwidth=25Gbit/s or bucket_mb=25,50.",
            autocompletion=_complete_keys,
        ),
    ] = None,
    workers: Annotated[str, typer.Option(help="How many, such as 4,8,16 or 4,8,...,1024.")] = "1,2,4,8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/prediction.md) and nothing else.")] = False,
) -> None:
    """Predict step time, throughput and phases, with an interval of 90 %, or say which measurement is missing."""
    from steptime.cli.arguments import Mistakes
    from steptime.predict.predict import predict as predicted
    from steptime.predict.profile import read_profile
    from steptime.predict.query import read_queries, read_workers

    read = read_profile(profile)
    mistakes = Mistakes()
    counts = mistakes.read("--workers", workers, read_workers)
    queries = mistakes.read("overrides", "", lambda _: read_queries(overrides or [], read))
    mistakes.complain()
    found = predicted(read, counts or [], queries or [])
    if as_json:
        from steptime.cli.tables import print_json
        from steptime.predict.predict import BASELINE

        print_json({"predictions": [to_json(each) for each in found], "baseline": BASELINE})
    else:
        _show(found)


def to_json(each: "Prediction") -> dict[str, Any]:
    """Return one prediction as docs/prediction.md describes it."""
    key = each.key
    return {
        "framework": key.framework,
        "strategy": key.strategy,
        "workload": key.workload,
        "workers": each.workers,
        "batch_per_worker": each.deployment.batch if each.deployment else None,
        "changed": dict(each.query.texts),
        "step_time_s": _bounds(each.step_s),
        "throughput_samples_per_s": each.throughput.value if each.throughput else None,
        "efficiency": each.efficiency.value if each.efficiency else None,
        "epoch_time_s": _bounds(each.epoch_s),
        "phases": {
            name: phase and {"value_s": phase.value_s, "low_s": phase.low_s, "high_s": phase.high_s, "how": phase.how}
            for name, phase in each.phases.items()
        },
        "dominant_phase": each.dominant,
        "extrapolation": each.extrapolation,
        "refused": each.refused,
        "notes": list(each.notes),
    }


def _bounds(interval: "PredictionInterval | None") -> dict[str, float | None]:
    if interval is None:
        return {"value": None, "low": None, "high": None}
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _show(found: "Sequence[Prediction]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from steptime.predict.predict import BASELINE

    console = Console(highlight=False)
    changed = list(dict.fromkeys(key for each in found for key in each.query.texts))
    models: dict[str, list[Prediction]] = {}
    for each in found:
        models.setdefault(_model(each), []).append(each)
    for name, group in models.items():
        batches = sorted({each.deployment.batch for each in group if each.deployment})
        batch = f", batch {', '.join(map(str, batches))} per worker" if batches else ""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=name + batch, title_justify="left", title_style="bold")
        epochs = ["epoch"] if any(each.epoch_s for each in group) else []
        short = [key.removeprefix("interconnect.") for key in changed]
        for title in [*short, "workers", "step", "90 %", "samples/s", "eff.", "mostly", "reach", *epochs]:
            narrow = title in ("mostly", *short)
            table.add_column(
                title, justify="left" if title == "mostly" else "right", no_wrap=not narrow, overflow="fold"
            )
        for each in group:
            table.add_row(*(each.query.texts.get(key, "") for key in changed), str(each.workers), *_cells(each))
        console.print(table)
    console.print(f"Efficiency is relative to {BASELINE}. Reach is how far the data lies behind, as a ratio.")
    for reason in dict.fromkeys(each.refused for each in found if each.refused):
        sys.stdout.write(f"refused: {reason}\n")
    for note in dict.fromkeys(note for each in found for note in each.notes):
        sys.stdout.write(f"note: {note}\n")


def _model(each: "Prediction") -> str:
    key = each.key
    return f"{key.framework} {key.strategy}, {key.workload}"


def _cells(each: "Prediction") -> list[str]:
    from steptime.units import format_seconds

    if each.step_s is None or each.throughput is None or each.efficiency is None or each.extrapolation is None:
        return ["refused"]
    cells = [
        format_seconds(each.step_s.value),
        _range(format_seconds(each.step_s.low), format_seconds(each.step_s.high)),
        f"{each.throughput.value:,.3g}" if each.throughput.value < 100 else f"{each.throughput.value:,.0f}",  # noqa: PLR2004 - three digits
        f"{each.efficiency.value:.0%}",
        str(each.dominant),
        f"{each.extrapolation:.3g}",
    ]
    return [*cells, format_seconds(each.epoch_s.value)] if each.epoch_s else cells


def _range(low: str, high: str) -> str:
    """The unit once, where it is the same."""
    unit = high.partition(" ")[2]
    return f"{low.removesuffix(' ' + unit)} - {high}" if low.endswith(f" {unit}") else f"{low} - {high}"
