"""A results folder of somebody else, whose files are links, pipes and second names: nothing outside is touched."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from shutil import which

import pytest
from simulated import a_launch, a_store, a_trial
from typer.testing import CliRunner

from steptime.cli.app import app
from steptime.errors import StoreError
from steptime.plain_file import MOST_BYTES, PlainFolder, write_whole
from steptime.results.store import Store

RECORDS = f"trials/{a_trial().id}/records.jsonl"
FILES = [
    *("study.json", "study.yaml", "machine.json", "verdicts.json", "skipped.json", "equivalence.jsonl", "net.jsonl"),
    *("run.lock", "index.sqlite", "export", "trials", f"trials/{a_trial().id}", RECORDS),
    *(f"trials/{a_trial().id}/{name}" for name in ("trial.json", "ablation.jsonl", "launch-0")),
]
VERBS = {
    "status": ["status"],
    "report": ["report"],
    "page": ["report", "--html", "page.html"],
    "parquet": ["export"],
    "traces": ["export", "--to", "chrome"],
    "fit": ["fit"],
}


@pytest.fixture
def store(tmp_path):
    store = a_store(tmp_path / "results")
    store.add_trial(a_trial())
    store.append(a_launch(a_trial()))
    return store


@pytest.fixture
def outside(tmp_path):
    """A folder of the reader with a secret file, to which links of the results folder lead."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "secret").write_text("the reader's secret\n")
    return folder


def planted(store, name, outside):
    """Put a link to the reader's file, or to the folder where the original is one, in the place of a file."""
    path = store.path / name
    as_folder = path.is_dir() or name == "export" or path.name.startswith("launch-")
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(outside if as_folder else outside / "secret")


def run(verb, store, monkeypatch):
    """Give the command; return its exit code and everything that it printed."""
    monkeypatch.chdir(store.path.parent)
    name, *options = VERBS[verb]
    result = CliRunner().invoke(app, [name, str(store.path), *options])
    return result.exit_code, result.output + str(result.exception or ""), result.exception


@pytest.mark.parametrize("name", ["study.yaml", "export", RECORDS])
@pytest.mark.parametrize("verb", VERBS)
def test_a_symbolic_link_in_a_results_folder_is_refused_by_its_name(verb, name, store, outside, monkeypatch):
    planted(store, name, outside)
    _, said, error = run(verb, store, monkeypatch)
    assert isinstance(error, StoreError)
    assert f"{name} is a symbolic link" in said
    assert "secret\n" not in said
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "the reader's secret\n"
    assert not (store.path.parent / "page.html").exists()


@pytest.mark.parametrize("name", FILES)
def test_a_run_is_not_continued_in_a_folder_with_a_link(name, store, outside):
    planted(store, name, outside)
    with pytest.raises(StoreError, match="is a symbolic link"):
        Store.open(store.path)


def test_a_link_that_is_planted_after_the_folder_was_opened_is_not_written_through(store, outside):
    for name in ("run.lock", RECORDS, "equivalence.jsonl"):
        planted(store, name, outside)
        with pytest.raises(StoreError, match="is a symbolic link"):
            store.append(a_launch(a_trial(), 1)) if name != "equivalence.jsonl" else list(store.equivalence())
        (store.path / name).unlink()
    assert (outside / "secret").read_text() == "the reader's secret\n"


@pytest.mark.parametrize("name", ["run.lock", RECORDS])
def test_a_second_name_of_another_file_is_not_written(name, store, outside):
    (store.path / name).unlink(missing_ok=True)
    (store.path / name).hardlink_to(outside / "secret")
    with pytest.raises(StoreError, match="second name"):
        store.append(a_launch(a_trial(), 1))
    assert (outside / "secret").read_text() == "the reader's secret\n"


@pytest.mark.parametrize("name", ["study.yaml", "machine.json", "equivalence.jsonl", RECORDS])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_an_error_at_once(name, make, store, monkeypatch):
    (store.path / name).unlink(missing_ok=True)
    make(store.path / name)
    _, said, error = run("page", store, monkeypatch)
    assert isinstance(error, StoreError)
    assert f"{name} is a" in said


@pytest.mark.parametrize("name", ["notes.txt", "export", "trials/more.jsonl", f"{RECORDS}.1"])
@pytest.mark.parametrize("kind", ["pipe", "second name"])
def test_what_lies_beside_records_is_refused_by_its_name(kind, name, store, outside):
    if kind == "pipe":
        os.mkfifo(store.path / name)
    else:
        (store.path / name).hardlink_to(outside / "secret")
    with pytest.raises(StoreError, match=f"{name} is a {kind}"):
        Store.open(store.path)


def test_a_socket_that_a_framework_left_is_no_harm(store, monkeypatch):
    monkeypatch.chdir(store.path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("left")
    Store.open(store.path)


def test_new_files_replace_links_instead_of_following_them(tmp_path, outside):
    page = tmp_path / "page.html"
    page.symlink_to(outside / "secret")
    write_whole(page, b"page")
    assert (page.is_symlink(), page.read_bytes()) == (False, b"page")
    assert (outside / "secret").read_text() == "the reader's secret\n"


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StoreError, match="a pipe"):
        write_whole(pipe, b"page")
    assert pipe.is_fifo()


def test_a_new_file_never_takes_a_name_that_somebody_foresaw(tmp_path, monkeypatch):
    """Names of temporary files of two writers differ, so neither writes into the other's."""
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **how: (opened.append((str(path), rest[0])), real(path, *rest, **how))[1]
    )
    write_whole(tmp_path / "a", b"1")
    write_whole(tmp_path / "a", b"2")
    partials = {path for path, flags in opened if path.endswith(".partial") and flags & os.O_EXCL}
    assert len(partials) == 2


def test_a_file_without_end_takes_bounded_memory(tmp_path):
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(100 * MOST_BYTES)
    with pytest.raises(StoreError, match="larger than"):
        PlainFolder(tmp_path).read(huge)


USES = {
    "reading": lambda folder, path: folder.read(path),
    "appending": lambda folder, path: folder.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    "replacing": lambda folder, path: folder.write(path, b"new"),
    "putting": lambda folder, path: folder.put(path, b"new"),
    "making a folder": lambda folder, path: folder.make(path.with_name("new")),
    "removing": lambda folder, path: folder.remove(path),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_folder_on_the_way_to_a_file_is_reached_through_a_link(use, tmp_path, outside):
    results = tmp_path / "results"
    results.mkdir()
    (results / "trials").symlink_to(outside)
    with pytest.raises(StoreError, match="trials is a symbolic link, not a plain folder"):
        use(PlainFolder(results), results / "trials" / "secret")
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "the reader's secret\n"


def test_no_path_leaves_its_folder(tmp_path, outside):
    folder = PlainFolder(tmp_path / "results")
    folder.make(folder.path)
    for path in (folder.path / ".." / "home" / "secret", outside / "secret"):
        with pytest.raises(ValueError, match="results"):
            folder.write(path, b"new")
    assert (outside / "secret").read_text() == "the reader's secret\n"


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path, outside):
    folder = PlainFolder(tmp_path)
    (tmp_path / "launch-0").mkdir()
    (tmp_path / "launch-0" / "link").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    folder.remove(tmp_path / "launch-0")
    folder.remove(tmp_path / "link")
    folder.remove(tmp_path / "gone")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    assert (outside / "secret").exists()


def test_a_folder_of_results_that_its_user_reaches_through_a_link_is_used(store, tmp_path):
    (tmp_path / "link").symlink_to(store.path)
    reached = Store.open(tmp_path / "link")
    reached.append(a_launch(a_trial(), 1))
    assert len(store.launches(a_trial().id)) == 2


def test_another_users_link_in_a_results_folder_reaches_nothing_of_root(monkeypatch):
    """A second user plants the link; root, who may write everything, exports."""
    link = which("ln")
    if os.getuid() != 0 or link is None:
        pytest.skip("only root can act as a second user")
    with tempfile.TemporaryDirectory() as root:
        home = Path(root, "home")
        home.mkdir()
        home.parent.chmod(0o755)
        store = a_store(Path(root, "results"))
        store.path.chmod(0o777)
        subprocess.run([link, "-s", str(home), str(store.path / "export")], check=True, user=65534, group=65534)
        _, said, error = run("parquet", store, monkeypatch)
        assert isinstance(error, StoreError), said
        assert list(home.iterdir()) == []
        monkeypatch.undo()


STUDY_FORMS = {
    "paper": [7, "x", [], {"title": "only"}, {"title": 1, "authors": 1, "year": "x", "address": 1}],
    "predictions": [7, "x", [1], {"workers": "many"}, {"workers": [2], "bandwidth": -1}],
    "published": [7, "x", {}, [7]],
    "published_efficiency": [7, "x", [7], [{"claim": "x"}]],
    "performance_models": [7, "x", ["nothing"]],
    "equivalence": [7, "x", []],
    "name": [7, None, []],
    "question": [7, []],
}
OBJECT_FORMS = {
    "implementations": ['{"x": 5}', '{"x": {"y": 5}}'],
    "sites": ['{"sites": 5}', '{"sites": [5]}'],
    "skipped": ['{"lines": 5}', '{"lines": [5]}'],
    "machine": ['{"cores": "x"}', '{"gpus": 5}'],
}


@pytest.mark.parametrize(("key", "value"), [(key, each) for key, forms in STUDY_FORMS.items() for each in forms])
def test_a_study_of_another_form_is_refused_by_the_name_of_its_key(key, value, store, monkeypatch):
    header = json.loads((store.path / "study.json").read_text())
    (store.path / "study.json").write_text(json.dumps(header | {"study": header["study"] | {key: value}}))

    _, said, error = run("report", store, monkeypatch)

    assert isinstance(error, StoreError)
    assert "study.json is damaged" in said
    assert key in said


@pytest.mark.parametrize(("name", "text"), [(name, each) for name, forms in OBJECT_FORMS.items() for each in forms])
def test_an_object_of_another_form_is_refused_by_the_name_of_its_file(name, text, store, monkeypatch):
    (store.path / f"{name}.json").write_text(text)

    _, said, error = run("report", store, monkeypatch)

    assert isinstance(error, StoreError)
    assert f"{name}.json is damaged" in said
