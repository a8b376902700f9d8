"""``steptime predict``: unmeasured configurations, from a profile or from a measured scaling curve."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from steptime.cli.arguments import Mistakes
from steptime.cli.section_output import FormOption, PageOption, chosen_form

_NO_SOURCE = (
    "nothing to predict from; give the PROFILE that `steptime fit DIR` wrote, or a scaling curve: --curve POINTS.csv"
)


def _complete_keys(incomplete: str) -> list[str]:
    from steptime.catalog.choices import STRATEGIES
    from steptime.catalog.workloads.table import LIBRARY
    from steptime.model.compute import DEVICES
    from steptime.predict.query import KEYS

    values = {"strategy": STRATEGIES, "workload": LIBRARY, "device": ["cpu", "cuda", *DEVICES]}
    key, equals, _ = incomplete.partition("=")
    if equals:
        return [each for value in values.get(key, ()) if (each := f"{key}={value}").startswith(incomplete)]
    return [f"{key}=" for key in KEYS if key.startswith(incomplete)]


def predict(
    profile: Annotated[
        Path | None, typer.Argument(metavar="[PROFILE]", help="What `steptime fit` wrote.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY.PATH=VALUE]...",
            help="What to change, such as interconnect.bandwidth=25Gbit/s or bucket_mb=25,50.",
            autocompletion=_complete_keys,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            help="Numbers of workers, such as 4,8,16 or 4,8,...,1024 (default: as many as hosts=N, else up to 8)."
        ),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(metavar="POINTS.csv", help="Predict a measured scaling curve of your own, without a profile."),
    ] = None,
    knee: Annotated[
        str, typer.Option(metavar="PERCENT,...", help="Find the workers at which efficiency falls below each of these.")
    ] = "80,50",
    everything: Annotated[
        bool, typer.Option("--all", help="Show every model, not the first of each workload alone.")
    ] = False,
    html: PageOption = None,
    form: FormOption = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/prediction.md) and nothing else.")] = False,
) -> None:
    """Predict step time, throughput and phases, with an interval of 90 %, or say which measurement is missing."""
    from steptime.cli.fitted_profile import with_results
    from steptime.cli.predictions import USUAL_WORKERS, predict_curve, predict_profile, predict_script
    from steptime.fitting.attached_profile import read_attached_profile
    from steptime.fitting.profile import read_profile
    from steptime.predict.attached import refused_changes
    from steptime.predict.query import read_queries, read_workers
    from steptime.scaling.knee import read_shares

    form = chosen_form(form, as_json=as_json)
    mistakes = Mistakes()
    counts = mistakes.read("--workers", workers, read_workers) or USUAL_WORKERS
    shares = mistakes.read("--knee", knee, read_shares) or []
    if curve is not None:
        mistakes.add(_contradictions(profile, overrides))
        mistakes.complain()
        predict_curve(curve, counts, shares, form=form, html=html)
        return
    if profile is None:
        mistakes.add([_NO_SOURCE])
        mistakes.complain()
        return

    own = read_attached_profile(profile)
    if own is not None:
        changes = refused_changes(own, overrides or [], counts)
        mistakes.add([with_results(each, own.folder, profile) for each in changes])
        mistakes.complain()
        predict_script(own, counts, shares, profile, form=form, html=html)
        return
    read = read_profile(profile)
    mistakes.read("overrides", "", lambda _: read_queries(overrides or [], read))
    mistakes.complain()
    asked = None if workers is None else counts
    predict_profile(read, profile, overrides or [], asked, shares, form=form, html=html, everything=everything)


def _contradictions(profile: Path | None, overrides: Sequence[str] | None) -> list[str]:
    given = [str(each) for each in (profile, *(overrides or ())) if each is not None]
    if not given:
        return []
    return [f"--curve predicts from the points of a curve alone; leave out {' '.join(given)}"]
