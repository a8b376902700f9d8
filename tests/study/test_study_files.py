"""Where a study is found, and what its file may be called."""

import re
from pathlib import Path

import pytest

from steptime.errors import StudyError
from steptime.study.study_file import read_study, shipped_studies, study_files, study_text

SMALLEST = "workloads: lenet5\nframeworks: pytorch\n"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("my race (1).yaml", "my-race-1"),
        ('it\'s "quoted".yml', "it-s-quoted"),
        ("line\nbreak.yaml", "line-break"),
        ("größe.yaml", "gr-e"),
        ("100%.yaml", "100"),
        ("---.yaml", "study"),
        ("-o.yaml", "o"),
        ("no_suffix", "no_suffix"),
        ("v1.2.yaml", "v1.2"),
    ],
)
def test_a_study_without_a_name_is_named_after_its_file(tmp_path, known, file, name):
    path = tmp_path / file
    path.write_text(SMALLEST)

    assert read_study(path, [], known).name == name


def test_a_mistake_in_a_file_with_a_line_break_in_its_name_is_one_line(tmp_path, known):
    path = tmp_path / "line\nbreak.yaml"
    path.write_text("workloads: lenet5\nframeworks: pytroch")

    with pytest.raises(StudyError) as raised:
        read_study(path, [], known)

    assert "\n" not in raised.value.mistakes[0]


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path, known):
    path = tmp_path / "race.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALLEST.encode())

    assert read_study(path, [], known).frameworks == ["pytorch"]


def test_a_file_that_is_no_text_is_refused_at_its_line(tmp_path, known):
    path = tmp_path / "race.yaml"
    path.write_bytes(SMALLEST.encode() + b"question: caf\xe9\n")

    with pytest.raises(StudyError, match=r"race\.yaml:3: not UTF-8 text"):
        read_study(path, [], known)


def test_a_folder_is_no_study(tmp_path, known):
    with pytest.raises(StudyError, match="cannot be read: Is a directory"):
        read_study(tmp_path, [], known)


def test_a_file_that_does_not_exist_is_answered_with_the_shipped_studies(tmp_path, known):
    with pytest.raises(StudyError, match=r"No such file or directory; the shipped studies are .*quickstart"):
        read_study(tmp_path / "race.yaml", [], known)


def test_an_unknown_name_is_answered_with_the_nearest_shipped_study(tmp_path, monkeypatch, known):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StudyError, match="unknown study 'quickstrat'; did you mean 'quickstart'"):
        read_study("quickstrat", [], known)


def test_a_shipped_study_is_found_by_its_name_even_beside_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text(SMALLEST)

    assert study_text("quickstart") == study_files()["quickstart"].read_text()
    assert study_text("./quickstart") == SMALLEST


def test_every_shipped_study_asks_a_question():
    assert all(re.search(r"\?$", question) for question in shipped_studies().values())


def test_a_folder_in_a_file_starts_where_the_file_is_and_in_an_override_where_the_user_is(tmp_path, monkeypatch, known):
    (tmp_path / "studies").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "studies" / "race.yaml"
    path.write_text(
        "frameworks: pytorch\nworkloads:\n- {name: lenet5, dataset: ./cats}\n- {name: lenet5, dataset: x/}\n"
    )

    study = read_study(path, ["workloads.1.dataset=./dogs"], known)

    assert [workload.dataset for workload in study.workloads] == [
        str(tmp_path / "studies" / "cats"),
        str(tmp_path / "here" / "dogs"),
    ]


def test_a_container_is_a_list_of_words_or_a_command_line_and_its_interpreter_is_python3(read):
    listed, written = (
        read(SMALLEST + f"environments: {{pytorch: {{container: {value}}}}}").environments["pytorch"]
        for value in ("[apptainer, exec, --nv, '/a b/image.sif']", "apptainer exec --nv '/a b/image.sif'")
    )

    assert listed == written
    assert listed.command == ["apptainer", "exec", "--nv", "/a b/image.sif", "python3"]
    assert listed.kind == "existing"


def test_a_container_may_come_from_the_command_line(read):
    study = read(
        SMALLEST, "environments.pytorch.container=apptainer exec image.sif", "environments.pytorch.python=python"
    )

    assert study.environments["pytorch"].command == ["apptainer", "exec", "image.sif", "python"]


def test_paths_of_a_container_are_found_from_the_file_and_that_of_its_interpreter_is_one_in_it(read, tmp_path):
    study = read(
        SMALLEST
        + "environments: {pytorch: {python: /opt/bin/python, container: [bin/run, ./a.sif, ../b, nvidia/c, --, .]}}"
    )

    container = [
        str(tmp_path / "bin" / "run"),
        str(tmp_path / "a.sif"),
        str(tmp_path / ".." / "b"),
        "nvidia/c",
        "--",
        ".",
    ]
    assert study.environments["pytorch"].command == [*container, "/opt/bin/python"]


def test_an_interpreter_is_found_from_the_file_but_a_bare_command_stays_one(tmp_path, known):
    path = tmp_path / "race.yaml"
    path.write_text(
        SMALLEST + "environments: {pytorch: {python: env/bin/python}, mxnet: {kind: existing, python: python3.11}}"
    )

    environments = read_study(path, [], known).environments

    assert environments["pytorch"].python == str(tmp_path / "env" / "bin" / "python")
    assert environments["mxnet"].python == "python3.11"
