"""No output of a stored study claims what its measurements cannot show."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from claims import further_digits, large_percentages, too_wide
from stored_studies import ARCHIVES, FITTED, PREDICTIONS, STUDIES, output_of, unpacked

from steptime.cli.console import PlainConsole
from steptime.report.page import sections_page
from steptime.report.sweep import sweep_section
from steptime.report.terminal import SectionText
from steptime.scaling.sweep_answer import SweepAnswer

COMPARED = {
    "four-frameworks": "framework=pytorch,mxnet",
    "stale-updates": "strategy=ps_sync,ps_async",
    "batches": "batch_per_worker=32,64",
}
"""What two sides of a study differ in; the trials of the others have no counterparts."""
FAR = ["--workers", "16,64,256", "interconnect.bandwidth=1Gbit/s", "workers_per_host=1"]
"""Predictions that lie far beyond what was measured; those of two hosts are refused."""
TAG = re.compile(r"<[^>]*>")


@cache
def outputs(study: str) -> dict[str, str]:
    """Return what every verb prints of a stored study, by the verb."""
    with TemporaryDirectory() as root:
        results = str(unpacked(study, Path(root)))
        page = Path(root, "page.html")
        found = {
            "report": output_of("report", "--all", results, "--html", str(page), columns=200),
            "short report": output_of("report", results, columns=80),
            "what if": output_of("report", "--what-if", results, columns=80),
            "status": output_of("status", results, columns=80),
            "advise": output_of("advise", results, columns=80),
            "page": text_of(page),
            **{form: output_of("report", "--format", form, results) for form in ("markdown", "latex")},
            "csv": output_of("report", "--format", "csv", results).replace(",", "\n"),
            "export": output_of("export", results, "--to", "csv", "-o", str(Path(root, "tables")), columns=80),
        }
        for columns in (80, 120, 200) if study in COMPARED else ():
            found[f"compare, {columns}"] = output_of("compare", results, "--by", COMPARED[study], columns=columns)
        if study in FITTED:
            profile = str(Path(root, "study.profile.json"))
            found["fit"] = output_of("fit", results, "-o", str(Path(root, "again.json")), columns=200)
            asked = PREDICTIONS if study == "two-hosts" else {**PREDICTIONS, "far": FAR}
            for name, arguments in asked.items():
                found[f"predict {name}"] = output_of("predict", profile, *arguments, columns=80)
    return found


def text_of(page: Path) -> str:
    """Return what a page shows but for its pictures, with intervals in parentheses as in a terminal."""
    shown = re.sub(r"(?s)<(script|style|svg).*?</\1>", " ", page.read_text())
    return unescape(TAG.sub(" ", re.sub(r" ?<small>([^<]* to [^<]*)</small>", r" (\1)", shown)))


def absurd(study: str, of: Callable[[str], Iterator[str]]) -> list[str]:
    """Return what a rule finds in the outputs of a study, by the verb."""
    return [f"{verb}: {line}" for verb, text in outputs(study).items() for line in of(text)]


@pytest.mark.sampled
@pytest.mark.parametrize("study", STUDIES[::-1])
def test_no_interval_whose_ends_differ_by_more_than_four_times_claims_its_number(study):
    assert not absurd(study, too_wide)


@pytest.mark.sampled
@pytest.mark.parametrize("study", STUDIES[::-1])
def test_no_percentage_is_above_300(study):
    assert not absurd(study, large_percentages)


@pytest.mark.sampled
@pytest.mark.parametrize("study", STUDIES[::-1])
def test_no_number_has_digits_beyond_its_interval(study):
    assert not absurd(study, further_digits)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (too_wide, "step 62 ms (6 to 619)"),
        (too_wide, "12.5 % (1,000 to 4,500)"),
        (large_percentages, "no difference larger than 99654942654718 %"),
        (large_percentages, "-14,345 %"),
        (further_digits, "109.25 ms (80 to 227)"),
        (further_digits, "1.234x (1.2 to 1.3)"),
    ],
)
def test_an_absurd_line_is_recognised(rule, line):
    assert [*rule(line)]


@pytest.mark.parametrize("rule", [too_wide, large_percentages, further_digits])
def test_a_line_that_claims_what_it_may_is_none(rule):
    assert not [*rule("33.4 ms (25.8 to 62.6), 300 %, inconclusive (9.5 ms to 52.1 ms), +3 % (-1 to +7)")]


def absurdities(text: str) -> list[str]:
    """Return what all rules find in a text."""
    return [*too_wide(text), *large_percentages(text), *further_digits(text)]


OF_A_RUN = {
    "answer": ["report"],
    "all": ["report", "--all"],
    "markdown": ["report", "--format", "markdown"],
    "latex": ["report", "--format", "latex"],
}
"""What each verb is asked of a user's own run."""


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", OF_A_RUN.values(), ids=OF_A_RUN)
@pytest.mark.parametrize("run", ["ray-train", "ray-data"])
def test_an_attached_run_claims_what_it_may(run, arguments, columns):
    text = output_of(*arguments, str(ARCHIVES.parent / f"{run}.tar.xz"), columns=columns)

    assert text
    assert not absurdities(text)


@pytest.mark.parametrize("run", ["ray-train", "ray-data"])
def test_the_page_of_an_attached_run_claims_what_it_may(run, tmp_path):
    page = tmp_path / "page.html"
    output_of("report", str(ARCHIVES.parent / f"{run}.tar.xz"), "--html", str(page), columns=80)

    assert "a step takes" in text_of(page)
    assert not absurdities(text_of(page))


@pytest.fixture(scope="module")
def swept():
    """The section of a stored sweep."""
    return sweep_section(SweepAnswer.model_validate_json((ARCHIVES.parent / "sweep.json").read_text()))


@pytest.mark.parametrize("columns", [80, 120])
def test_a_sweep_claims_what_it_may(swept, columns, capsys):
    PlainConsole(width=columns).print(SectionText([swept]))
    text = capsys.readouterr().out

    assert "workers" in text
    assert not absurdities(text)


def test_the_page_of_a_sweep_claims_what_it_may(swept, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(sections_page([swept], "sweep", "steptime sweep"))

    assert "workers" in text_of(page)
    assert not absurdities(text_of(page))


CURVES = {
    "slower and slower": {1: 0.001, 2: 0.1, 4: 3.0},
    "smooth": {1: 0.2, 2: 0.204, 4: 0.21, 8: 0.22},
    "two points": {1: 0.2, 2: 0.25},
    "scattered": {1: 0.2, 2: 0.6, 4: 0.61, 8: 2.5},
}
"""Seconds of a step by the number of workers."""


@pytest.mark.sampled
@pytest.mark.parametrize("points", CURVES.values(), ids=CURVES)
def test_a_predicted_curve_claims_what_it_may(points, tmp_path):
    table, page = tmp_path / "points.csv", tmp_path / "page.html"
    table.write_text("workers,step_time_s\n" + "".join(f"{count},{seconds}\n" for count, seconds in points.items()))
    asked = ["predict", "--curve", str(table), "--workers", "16,256,4096"]
    text = output_of(*asked, "--html", str(page), columns=80) + text_of(page)

    assert "4096" in text
    assert not absurdities(text)


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [80, 120])
def test_the_demo_claims_what_it_may(columns, tmp_path):
    text = output_of("demo", "-o", str(tmp_path), columns=columns)
    (page,) = tmp_path.glob("*/report.html")

    assert "samples/s" in text
    assert not absurdities(text + text_of(page))


@pytest.mark.parametrize("script", ["study", "--net"])
def test_a_plan_claims_what_it_may(script, tmp_path):
    arguments = {
        "study": ["run", "quickstart", "--dry-run", "-o", str(tmp_path / "results")],
        "--net": ["net", "gloo", "--dry-run", "-o", str(tmp_path / "results")],
    }[script]
    text = output_of(*arguments, columns=80)

    assert text
    assert not absurdities(text)
