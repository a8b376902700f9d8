"""The stored studies give the terminal reports, JSON, pages, exports, profiles and predictions of the golden files."""

from pathlib import Path

import pytest
from golden import GOLDEN, READABLE, changed, digests_of, is_readable, kept_digests, parts_of, render, renumbered
from stored_studies import STUDIES

RENEW = "read the difference and renew: .venv/bin/python tests/stored/golden.py --renew"


@pytest.mark.parametrize("study", STUDIES)
def test_the_outputs_of_a_stored_study_are_the_golden_ones(study, tmp_path):
    outputs = render(study, tmp_path)
    kept = {name: digest for name, digest in kept_digests().items() if name.startswith(f"{study} ")}

    if study == READABLE:
        folder = GOLDEN / READABLE
        readable = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.*")}
        assert {name: text for name, text in outputs.items() if is_readable(name)} == readable, RENEW
    assert changed(kept, digests_of(study, outputs)) == [], RENEW


def test_golden_files_have_every_stored_study():
    assert {name.split(" ")[0] for name in kept_digests()} == set(STUDIES)


@pytest.mark.parametrize(
    ("name", "before", "after", "part"),
    [
        ("report-80.txt", "a  b\n", "a b\n", "report-80.txt"),
        ("report.json", '{"a": 1, "b": [1, 2]}', '{"a": 1, "b": [1, 3]}', "report.json b[1]"),
        ("report.json", '{"a": 1}', '{\n  "a": 1\n}', "report.json layout"),
        ("page.html", '<b>1</b><section id="x">2', '<b>1</b><section id="x">3', "page.html x"),
    ],
)
def test_a_change_of_one_part_changes_the_digest_of_this_part_alone(name, before, after, part):
    digests = [digests_of("s", {name: text}) for text in (before, after)]

    assert changed(*digests) == [f"s {part}: different"]
    assert part in dict(parts_of(name, before))


def test_a_part_that_is_gone_is_reported(tmp_path: Path):
    assert changed({"s a": "1", "s b": "2"}, {"s a": "1", "s c": "3"}) == ["s b: missing", "s c: new"]


def test_clip_paths_of_a_page_are_numbered_by_the_page():
    pages = [f'<clipPath id="clip{n}"/><g clip-path="url(#clip{n})"/><clipPath id="clip{n + 3}"/>' for n in (1, 7)]

    assert renumbered(pages[0]) == renumbered(pages[1])
    assert renumbered(pages[0]).count("clip-1") == 2
