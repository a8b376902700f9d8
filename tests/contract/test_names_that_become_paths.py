"""Every name from a file that becomes part of a path holds to the pattern of ``file_name``, wherever it comes from."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import steptime
from steptime.environments.spec import EnvironmentSpec
from steptime.errors import SteptimeError
from steptime.expansion.site import find_site
from steptime.file_name import FILE_NAME, HOST_NAME
from steptime.results.store import Store
from steptime.runner.plan import plan_study
from steptime.study.hosts import HostsChoice

HOSTILE = [
    "../../x",
    "..",
    ".hidden",
    "a/b",
    "/etc",
    "-rf",
    "a\nb",
    "a\n",
    "\x1bc",
    "\u202etxt",
    "a b",
    "",
    "~x",
]
LONG = "x" * 300
STUDY = {"workloads": "lenet5", "frameworks": "reference", "workers": 1}


def planned(folder: Path, **keys: object) -> None:
    study = folder / "study.yaml"
    study.write_text(json.dumps({**STUDY, **keys}))
    plan_study(str(study), [], None, None)


def of_study(folder: Path, name: str) -> None:
    planned(folder, name=name)


def of_scale(folder: Path, name: str) -> None:
    planned(folder, scales={name: {"workers": 2}})


def of_chosen_scale(folder: Path, name: str) -> None:
    planned(folder, scale=name, scales={name: {"workers": 2}})


def of_environment(_: Path, name: str) -> None:
    EnvironmentSpec(name, Path("requirements.txt"), ["3.11"])


def of_trial(folder: Path, name: str) -> None:
    Store.create(folder / "results", study_text="", study_json={"name": "x"}).launches(name)


def of_host(folder: Path, name: str) -> None:
    if name == "a\n":
        pytest.skip("blanks around a host's name count nothing")
    planned(folder, launcher="ssh", hosts=[name, "n0"])  # alone, a slash makes it the path of a hostfile


def of_scheduled_host(folder: Path, name: str) -> None:
    if name != "".join(name.split()) or not name:
        pytest.skip("a list of hosts has words")
    (folder / "nodes").write_text(f"{name}\n")
    find_site("ssh", HostsChoice(), None, "the study", {"PBS_NODEFILE": str(folder / "nodes")})


PLACES: list[Callable[[Path, str], None]] = [
    of_study,
    of_scale,
    of_chosen_scale,
    of_environment,
    of_trial,
    of_host,
    of_scheduled_host,
]


@pytest.mark.parametrize("name", [*HOSTILE, LONG], ids=ascii)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_name_that_leads_elsewhere_is_refused_with_what_is_allowed(place, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SteptimeError) as refused:
        place(tmp_path, name)

    said = str(refused.value)
    if name == LONG:
        assert "is too long; it may have" in said
    else:
        assert repr(name) in said
        # What has a slash is taken for a file with a list of hosts.
        file = place is of_host and "/" in name
        assert file or re.search(
            r"is not a name: it starts with .* and continues with letters, digits, '\.', '_', '-'", said
        )


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_plain_name_is_taken(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place(tmp_path, "n0.site-2_x")


def test_the_patterns_stand_in_one_place():
    source = Path(steptime.__file__).parent
    for pattern in (FILE_NAME, HOST_NAME):
        files = [path.name for path in source.rglob("*.py") if pattern in path.read_text("utf-8")]
        assert files == ["file_name.py"]


def test_no_source_gives_a_file_in_the_folder_of_temporary_files_a_foreseeable_name():
    """Others could make it before: ``tempfile`` chooses the names, and its files open to their owner alone."""
    source = Path(steptime.__file__).parent
    naming = re.compile(r"gettempdir\(\)|[\"']/(var/)?tmp\b|\bmktemp\(")
    found = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if naming.search(path.read_text())}

    harmless = "build.py asks how much space is left there, plain_file.py what its own killed processes left"
    assert found == {"environments/build.py", "plain_file.py"}, harmless
