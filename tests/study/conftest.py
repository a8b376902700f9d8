"""A small vocabulary, and study files written for one test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from steptime.errors import StudyError
from steptime.study.study import Study
from steptime.study.study_file import read_study
from steptime.study.unknown_names import FrameworkFacts, OptionFacts, Vocabulary

SMALLEST = "workloads: lenet5\nframeworks: pytorch\n"


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Two frameworks, one of them with options."""
    return Vocabulary(
        frameworks={
            "pytorch": FrameworkFacts(
                strategies=("single", "allreduce"),
                devices=("cpu", "cuda"),
                precisions=("fp32", "bf16"),
                loaders=("synthetic", "native"),
                options={
                    "bucket_mb": OptionFacts("float", 25.0, strategies=("allreduce",)),
                    "layout": OptionFacts("str", "nchw", choices=("nchw", "nhwc")),
                    "compile": OptionFacts("bool", default=False),
                    "threads": OptionFacts("int", 1),
                    "shards": OptionFacts("int", 1, minimum=1, maximum=1024),
                    "momentum": OptionFacts("float", -1.0, minimum=0, below=1, also=(-1,)),
                    "rate": OptionFacts("float", 1.0, above=0),
                    "nudges": OptionFacts("str", "none", pattern="none|[0-9]@[0-9]-[0-9]", examples=("none", "3@0-1")),
                },
            ),
            "mxnet": FrameworkFacts(strategies=("single", "ps_sync"), loaders=("synthetic", "native")),
        },
        workloads=("lenet5", "resnet50"),
        datasets=("digits", "photos"),
        launchers=("inline", "local", "mpi"),
        environment_kinds=("existing", "venv"),
    )


Read = Callable[..., Study]
Mistakes = Callable[..., list[str]]


@pytest.fixture
def read(tmp_path: Path, vocabulary: Vocabulary) -> Read:
    """Read a text as the file ``race.yaml``, with overrides."""

    def read_text(text: str, *overrides: str) -> Study:
        path = tmp_path / "race.yaml"
        path.write_text(text, encoding="utf-8")
        return read_study(path, overrides, vocabulary)

    return read_text


@pytest.fixture
def mistakes(read: Read, tmp_path: Path) -> Mistakes:
    """Return what is wrong with a text, without the folder of its file."""

    def of(text: str, *overrides: str) -> list[str]:
        with pytest.raises(StudyError) as raised:
            read(text, *overrides)
        return [sentence.replace(f"{tmp_path}/", "") for sentence in raised.value.mistakes]

    return of
