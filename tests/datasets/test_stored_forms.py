"""A stored form is whole, or not there: decoded pixels, tar shards, TFRecord and RecordIO."""

import json
import shutil
import struct
import tarfile
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from steptime.datasets import stored_forms
from steptime.datasets.creation import open_dataset
from steptime.datasets.dataset import Dataset
from steptime.datasets.stored_forms import (
    STORED_FORMS,
    checksums,
    find_stored,
    recordio_entry,
    store,
    stored_bytes,
    stored_folder,
)
from steptime.errors import DatasetError
from steptime.worker.batches import worker_order
from steptime.worker.samples import read_index, read_shards, read_sizes
from steptime.worker.stored_images import DecodedImages, TarMembers

FORMS = sorted(STORED_FORMS)


@pytest.fixture
def images(folder: Path, cache: Path) -> Dataset:
    """The folder of six images of the other tests, looked through."""
    return open_dataset(str(folder), cache)


def for_workers(made: Dataset) -> dict:
    """Return what a job says of a dataset, as far as workers read it here."""
    return {"index": str(made.index), "root": str(made.path), "samples": made.samples}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_has_the_labels_and_sizes_of_the_folder_in_its_order(images, form, tmp_path):
    made = store(images, form, tmp_path / form)

    assert made.samples == images.samples
    np.testing.assert_array_equal(read_index(for_workers(made))[1], read_index(for_workers(images))[1])
    np.testing.assert_array_equal(read_sizes(for_workers(made)), read_sizes(for_workers(images)))


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_about_as_large_as_was_said_before(images, form, tmp_path):
    made = store(images, form, tmp_path / form)

    assert made.bytes == pytest.approx(stored_bytes(images, form), rel=0.1, abs=64 * 10240)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_made_once(images, form, tmp_path, monkeypatch):
    first = store(images, form, tmp_path / form)
    monkeypatch.setattr(stored_forms, "_fill", None)

    assert store(images, form, tmp_path / form) == first


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_which_a_byte_is_missing_is_not_taken(images, form, tmp_path):
    made = store(images, form, tmp_path / form)
    file = next(path for path in sorted(made.path.iterdir()) if path.name != "index.json")
    file.write_bytes(file.read_bytes()[:-1])

    assert find_stored(images, form, tmp_path / form) is None


def test_decoded_pixels_are_those_of_the_files(images, tmp_path):
    made = store(images, "decoded", tmp_path / "made")
    decoded = DecodedImages(for_workers(made), read_sizes(for_workers(made)))

    for index, path in enumerate(read_index(for_workers(images))[0]):
        with Image.open(path) as file:
            np.testing.assert_array_equal(decoded[index], np.asarray(file.convert("RGB")))


def test_tar_shards_hold_the_files_and_any_tar_reads_them(images, tmp_path):
    made = store(images, "tar_shards", tmp_path / "made")
    members, paths = TarMembers(for_workers(made)), read_index(for_workers(images))[0]

    assert [members.read(index) for index in range(6)] == [Path(path).read_bytes() for path in paths]
    names = []
    for shard in sorted(made.path.glob("*.tar")):
        with tarfile.open(shard) as archive:
            names += archive.getnames()
    assert len(names) == 12


@pytest.mark.parametrize("form", ["tar_shards", "tfrecord"])
def test_shards_hold_every_sample_once(images, form, tmp_path):
    made = store(images, form, tmp_path / "made")

    assert sorted(np.concatenate(read_shards(for_workers(made)["index"]))) == list(range(6))


@pytest.mark.parametrize("form", ["tar_shards", "tfrecord"])
def test_the_reference_reads_files_in_the_order_of_the_shards(images, form, tmp_path):
    """The check of a study holds what a loader of shards delivers against the files that they were made of."""
    made = store(images, form, tmp_path / "made")
    files = {**for_workers(images), "form": images.form, "shards": str(made.index)}
    orders = [
        worker_order({"loader": {"dataset": dataset}, "batch_per_worker": 1, "seed": 3}, 0, 2)
        for dataset in ({**for_workers(made), "form": form}, files)
    ]

    of_shards, of_files = ([(epoch, chosen[0]) for epoch, chosen in islice(order, 9)] for order in orders)
    assert of_files == of_shards


def test_images_of_one_class_are_not_together_in_a_shard():
    shards = stored_forms.shard_members(6400, 0)

    assert len(shards) == 64
    assert all(max(shard) - min(shard) > 3000 for shard in shards)


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_leaves_nothing_and_is_said(images, form, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored_forms, "_fill", full)

    with pytest.raises(DatasetError, match=r"which takes about .*: No space left on device; free space there"):
        store(images, form, tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir() if "made" in path.name] == []


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(images, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))

    with pytest.raises(DatasetError, match=r"as decoded, and .* has 1 B left; free space there"):
        store(images, "decoded", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_folder_that_changed_is_stored_anew(images, folder, cache):
    before = stored_folder(images, "decoded", cache)
    (path,) = [Path(each) for each in read_index(for_workers(images))[0][:1]]
    shutil.copy(path, path.with_name("another.jpg"))

    assert stored_folder(open_dataset(str(folder), cache), "decoded", cache) != before


def test_a_folder_that_holds_something_else_is_left_alone(images, tmp_path):
    (tmp_path / "diary.txt").write_text("mine")

    with pytest.raises(DatasetError, match="holds something already"):
        store(images, "decoded", tmp_path)
    assert (tmp_path / "diary.txt").read_text() == "mine"


@pytest.mark.parametrize("index", ["{}", "[]", "no JSON", '{"files": [], "bytes": {"diary.txt": 4}}'])
def test_a_folder_with_an_index_of_somebody_else_is_left_alone(index, images, tmp_path):
    for name, content in {"diary.txt": "mine", "index.json": index}.items():
        (tmp_path / "site" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "site" / name).write_text(content)

    with pytest.raises(DatasetError, match="site holds something already"):
        store(images, "decoded", tmp_path / "site")
    assert (tmp_path / "site" / "diary.txt").read_text() == "mine"


@pytest.mark.parametrize("form", FORMS)
def test_what_a_user_added_to_a_form_is_never_deleted(form, images, tmp_path):
    made = store(images, form, tmp_path / "made")
    file = next(path for path in sorted(made.path.iterdir()) if path.name != "index.json")
    (made.path / "diary.txt").write_text("mine")
    assert store(images, form, tmp_path / "made") == made
    file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(DatasetError, match=r"did not make: diary\.txt; nothing was deleted"):
        store(images, form, tmp_path / "made")
    assert (made.path / "diary.txt").read_text() == "mine"


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_which_a_byte_is_missing_is_made_again(form, images, tmp_path):
    made = store(images, form, tmp_path / "made")
    file = next(path for path in sorted(made.path.iterdir()) if path.name != "index.json")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])

    assert store(images, form, tmp_path / "made") == made
    assert file.read_bytes() == whole


def test_an_array_has_no_other_form(digits, tmp_path):
    with pytest.raises(DatasetError, match="digits is not a folder of images"):
        store(digits, "decoded", tmp_path / "made")


def test_checksums_are_those_of_the_rfc():
    """RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and rising; and the usual check value."""
    rising = bytes(range(32))

    found = checksums([b"\0" * 32, b"\xff" * 32, rising, b"123456789"])

    assert found == [0x8A9136AA, 0x62A8AB43, 0x46DD794E, 0xE3069283]


def test_a_record_with_the_magic_number_inside_is_cut_there():
    """The number at a multiple of four bytes begins a new part; elsewhere it stays."""
    magic = struct.pack("<I", 0xCED7230A)
    entry = recordio_entry(3, 1, b"abcd" + magic + b"x" + magic + b"yz")

    _, first = struct.unpack("<II", entry[:8])
    assert first == 1 << 29 | 24 + 4
    _, last = struct.unpack("<II", entry[8 + 28 : 16 + 28])
    assert last == 3 << 29 | 7
    assert entry[16 + 28 :] == b"x" + magic + b"yz" + b"\0"


def test_entries_carry_what_examples_hold():
    example = stored_forms.tfrecord_example(300, 5, b"image")

    assert b"image/encoded" in example
    assert bytes([0xAC, 0x02]) in example


def test_progress_ends_with_every_image(images, tmp_path):
    seen = []

    store(images, "tar_shards", tmp_path / "made", lambda done, total: seen.append((done, total)))

    assert seen == [(count, 6) for count in range(1, 7)]
    assert json.loads((tmp_path / "made" / "index.json").read_text())["form"] == "tar_shards"
