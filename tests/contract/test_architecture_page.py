"""docs/architecture.md lists the packages that exist, in the order that the linter enforces."""

import configparser
import re
from pathlib import Path

import pytest
from program import report, steptime

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = ROOT / "src" / "steptime"


def layers() -> list[list[str]]:
    """Return the packages as the linter enforces them, from top to bottom."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    lines = config["importlinter:contract:layers"]["layers"].split()
    return [re.split(r"\s*\|\s*", line) for line in " ".join(lines).replace(" | ", "|").split()]


def rows_of_packages() -> list[list[str]]:
    """Return the packages as the page lists them."""
    table = PAGE.split("## The packages")[1].split("## What crosses")[0]
    return [re.findall(r"`(\w+)`", row.split("|")[1]) for row in re.findall(r"^\| `.*$", table, re.MULTILINE)]


def test_the_page_lists_the_packages_in_the_order_that_the_linter_enforces():
    assert [sorted(row) for row in rows_of_packages()] == [sorted(layer) for layer in layers()]


def test_every_package_is_on_the_page():
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages <= set(re.findall(r"`(\w+)`", PAGE))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/(?:[\w]+\.py)?)`", PAGE))))
def test_every_file_that_the_page_names_is_there(path):
    assert (SOURCE / path).exists() or (ROOT / path).exists()


def ways() -> list[list[tuple[str, str]]]:
    """Return the file and the function of every step of each way through the code."""
    section = PAGE.split("## Three ways")[1].split("\n## ")[0]
    lists = [block for block in section.split("\n\n") if block.startswith("1. ")]
    return [re.findall(r"^\d\. `([\w/]+\.py)`: `(?:\w+\.)?(\w+)`", each, re.MULTILINE) for each in lists]


def test_each_way_through_the_code_has_at_most_seven_functions():
    assert [0 < len(way) <= 7 for way in ways()] == [True] * 3


@pytest.mark.parametrize(("path", "function"), sorted({step for way in ways() for step in way}))
def test_every_function_of_a_way_is_in_its_file(path, function):
    assert re.search(rf"^\s*def {function}\(", (SOURCE / path).read_text(), re.MULTILINE)


def test_the_command_that_shows_it_moving_works(tmp_path):
    (command,) = re.findall(r"^steptime run .*$", PAGE, re.MULTILINE)
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in command.split()[1:]]
    quick = ["seconds_per_launch=0.05", "steps={warmup: 1, min: 3, max: 5}", "launches={min: 2, max: 2}"]
    steptime(*words, *quick, "-o", "results", cwd=tmp_path)
    assert [trial["status"] for trial in report(tmp_path, "results")["trials"]] == ["ok"]
