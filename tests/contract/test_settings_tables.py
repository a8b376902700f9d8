"""Every framework's README lists its settings in both tiers, as its manifest has them, each with its source."""

from pathlib import Path

import pytest

from steptime.catalog.manifest import load_manifest, load_manifests
from steptime.runner.settings_table import settings_mistakes, settings_rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "numpy_ring" / "numpy_ring" / "framework" / "framework.toml"
OPTIONS = """
title = "Planted"
distribution = "planted"
python = ["3.11"]
[strategies.single]
[strategies.allreduce]
[options.compile]
help = "compile the whole step"
type = "bool"
default = false
[options.bucket_mb]
help = "gradients that travel together"
type = "float"
default = 25.0
strategies = ["allreduce"]
[tuned]
compile = true
"""
RIGHT = """# planted

## Settings

| setting | documented | tuned | source |
|---|---|---|---|
| `compile` | false | true | [guide](https://example.org/guide) |
| `bucket_mb` | 25 | 25 | its default |
| update | fused | fused | fixed in code |

## More
"""


def mistakes(folder: Path, readme: str) -> list[str]:
    (folder / "framework.toml").write_text(OPTIONS)
    (folder / "README.md").write_text(readme)
    return settings_mistakes(load_manifest(folder / "framework.toml"))


@pytest.mark.parametrize("name", sorted(load_manifests()))
def test_the_table_of_a_framework_is_that_of_its_manifest(name):
    assert settings_mistakes(load_manifests()[name]) == []


def test_the_table_of_the_example_and_template_is_that_of_its_manifest():
    assert settings_mistakes(load_manifest(EXAMPLE)) == []


def test_a_table_with_the_values_of_both_tiers_is_right(tmp_path):
    assert mistakes(tmp_path, RIGHT) == []


def test_a_setting_that_is_fixed_in_code_may_have_a_row():
    assert [row.setting for row in settings_rows(RIGHT)] == ["`compile`", "`bucket_mb`", "update"]


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("## Settings", "## Setup", "no table"),
        ("| setting | documented", "| option | documented", "no table"),
        ("| `bucket_mb` | 25 | 25 | its default |\n", "", "the option bucket_mb has no row"),
        ("| false | true |", "| true | true |", "the documented value is false"),
        ("| false | true |", "| false | false |", "the tuned value is true"),
        ("| 25 | 25 |", "| 250 | 25 |", "the documented value is 25.0"),
        ("[guide](https://example.org/guide)", "experience", "not a link"),
        ("| fused | fused |", "|  | fused |", "empty cell"),
    ],
)
def test_a_table_that_says_something_else_is_refused(tmp_path, right, wrong, said):
    assert right in RIGHT
    assert said in "; ".join(mistakes(tmp_path, RIGHT.replace(right, wrong)))
