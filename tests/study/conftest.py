"""A few names, and study files written for one test."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from steptime.catalog.manifest import Manifest
from steptime.errors import StudyError
from steptime.study.mistakes import KnownNames
from steptime.study.study import Study
from steptime.study.study_file import read_study

SMALLEST = "workloads: lenet5\nframeworks: pytorch\n"


@pytest.fixture(scope="session")
def known() -> KnownNames:
    """Two frameworks, one of them with options."""
    return KnownNames(
        frameworks={
            "pytorch": manifest(
                "pytorch",
                strategies=("single", "allreduce"),
                options={
                    "bucket_mb": {"type": "float", "default": 25.0, "strategies": ["allreduce"]},
                    "layout": {"type": "str", "default": "nchw", "choices": ["nchw", "nhwc"]},
                    "compile": {"type": "bool", "default": False},
                    "threads": {"type": "int", "default": 1},
                    "shards": {"type": "int", "default": 1, "minimum": 1, "maximum": 1024},
                    "momentum": {"type": "float", "default": -1.0, "minimum": 0, "below": 1, "also": [-1]},
                    "rate": {"type": "float", "default": 1.0, "above": 0},
                    "nudges": {
                        "type": "str",
                        "default": "none",
                        "pattern": "none|[0-9]@[0-9]-[0-9]",
                        "examples": ["none", "3@0-1"],
                    },
                },
            ),
            "mxnet": manifest("mxnet", strategies=("single", "ps_sync")),
        },
        workloads=("lenet5", "resnet50"),
        datasets=("digits", "photos"),
        launchers=("inline", "local", "mpi"),
    )


def manifest(name: str, strategies: Sequence[str], options: Mapping[str, dict[str, Any]] | None = None) -> Manifest:
    """Return a manifest that names what a study may ask for, and nothing else."""
    return Manifest.model_validate(
        {
            **dict.fromkeys(("name", "package", "title", "distribution"), name),
            "folder": Path(name),
            "python": ["3.11"],
            "loaders": ["synthetic", "native"],
            "strategies": {strategy: {} for strategy in strategies},
            "options": {option: {"help": option, **keys} for option, keys in (options or {}).items()},
        }
    )


Read = Callable[..., Study]
Mistakes = Callable[..., list[str]]


@pytest.fixture
def read(tmp_path: Path, known: KnownNames) -> Read:
    """Read a text as the file ``race.yaml``, with overrides."""

    def read_text(text: str, *overrides: str) -> Study:
        path = tmp_path / "race.yaml"
        path.write_text(text, encoding="utf-8")
        return read_study(path, overrides, known)

    return read_text


@pytest.fixture
def mistakes(read: Read, tmp_path: Path) -> Mistakes:
    """Return what is wrong with a text, without the folder of its file, in which there is a folder ``a``."""
    (tmp_path / "a").mkdir(exist_ok=True)

    def of(text: str, *overrides: str) -> list[str]:
        with pytest.raises(StudyError) as raised:
            read(text, *overrides)
        return [sentence.replace(f"{tmp_path}/", "") for sentence in raised.value.mistakes]

    return of
