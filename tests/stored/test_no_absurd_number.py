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
        if study in COMPARED:
            found["compare"] = output_of("compare", results, "--by", COMPARED[study], columns=200)
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


@pytest.mark.parametrize("arguments", [[], ["--all"]], ids=["answer", "all"])
@pytest.mark.parametrize("run", ["ray-train", "ray-data"])
def test_an_attached_run_claims_what_it_may(run, arguments, tmp_path):
    page = tmp_path / "page.html"
    archive = str(ARCHIVES.parent / f"{run}.tar.xz")
    text = output_of("report", *arguments, archive, "--html", str(page), columns=80) + text_of(page)

    assert "a step takes" in text
    assert not [*too_wide(text), *large_percentages(text), *further_digits(text)]


@pytest.mark.parametrize("script", ["study", "--net"])
def test_a_plan_claims_what_it_may(script, tmp_path):
    arguments = {
        "study": ["run", "quickstart", "--dry-run", "-o", str(tmp_path / "results")],
        "--net": ["net", "gloo", "--dry-run", "-o", str(tmp_path / "results")],
    }[script]
    text = output_of(*arguments, columns=80)

    assert text
    assert not [*too_wide(text), *large_percentages(text), *further_digits(text)]
