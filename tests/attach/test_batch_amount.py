"""What a batch holds, by the shapes of its arrays."""

from collections import UserDict
from typing import NamedTuple

import numpy as np
import pytest

from steptime.attach.batch_amount import COMPARED, NO_BATCH, AskedSizes, BatchAmount, BatchReader


class Pair(NamedTuple):
    """A batch with names."""

    x: np.ndarray
    y: np.ndarray


class Unreadable:
    """A batch of a class that steptime does not know."""

    @property
    def shape(self):
        raise RuntimeError


def images(count, *shape):
    return np.zeros((count, *shape), np.float32)


def words(*shape, kind=np.int64):
    return np.ones(shape, kind)


def encoded(*, real):
    mask = words(4, 32)
    mask[:, real:] = 0
    return {"input_ids": words(4, 32), "attention_mask": mask, "labels": words(4, 32)}


SAMPLES = {
    "images and labels": ((images(8, 3, 32, 32), words(8)), 8),
    "a list": ([images(8, 3, 32, 32), words(8)], 8),
    "one array": (images(5, 10), 5),
    "a named tuple": (Pair(images(6, 4), words(6)), 6),
    "a dictionary": ({"pixel_values": images(7, 3, 8, 8), "labels": words(7)}, 7),
    "pairs and labels": ([[images(9, 3, 8, 8), images(9, 3, 8, 8)], words(9)], 9),
    "texts beside": ((["a"] * 4, words(4)), 4),
    "detection": ((tuple(images(3, 32, 32) for _ in range(5)), tuple({"boxes": images(n, 4)} for n in range(5))), 5),
    "records": ([{"prompt": "a b", "level": 1}] * 6, 6),
    "records of several kinds": ([{"prompt": "a b"}, {"question": "c"}], None),
    "a record and a text": ([{"prompt": "a b"}, "c"], None),
    "samples that were not joined": ([(images(8), label) for label in range(5)], 5),
    "named samples that were not joined": ([{"image": images(3, 8, 8), "file": "a.jpg"}] * 4, 4),
    "two views with their labels": ([(images(8, 3), words(8)), (images(8, 3), words(8))], 8),
    "arrays, texts and a number": ([images(8, 3), ["a"] * 8, 7], 8),
    "unequal": ((images(8, 3), words(9)), None),
    "single images": ([images(3, 32, 32), images(3, 32, 32)], None),
    "no array": (["a", "b"], None),
    "objects": ([object()], None),
    "an object that cannot be read": (Unreadable(), None),
    "numbers": ((np.float32(1.0), 3), None),
    "nothing": (None, None),
}


@pytest.mark.parametrize(("batch", "samples"), SAMPLES.values(), ids=SAMPLES)
def test_samples_are_the_leading_dimension_that_arrays_share(batch, samples):
    assert BatchReader().read(batch).samples == samples


TOKENS = {
    "input_ids": ({"input_ids": words(4, 32)}, 128),
    "packed input_ids": ({"input_ids": words(100)}, 100),
    "a tokenizer's encoding": (UserDict(input_ids=words(4, 32)), 128),
    "of int32": ((words(4, 32, kind=np.int32), words(4)), 128),
    "next tokens": ((words(4, 8), words(4, 8)), 32),
    "pairs of texts": ({"anchor_input_ids": words(4, 8), "positive_input_ids": words(4, 16)}, 96),
    "preferences": ({f"{name}_input_ids": words(4, 8) for name in ("prompt", "chosen", "rejected")}, 96),
    "a few categories": ((words(4, 8), words(4)), None),
    "numbers and categories": ((images(4, 13), words(4, 26)), None),
    "pixels in bytes": ((words(4, 784, kind=np.uint8), words(4)), None),
    "images": ((images(4, 3, 8, 8), words(4)), None),
}


@pytest.mark.parametrize(("batch", "tokens"), TOKENS.values(), ids=TOKENS)
def test_tokens_are_integers_with_a_row_for_each_sample(batch, tokens):
    assert BatchReader().read(batch).tokens == tokens


def test_a_mask_tells_padding_apart():
    amount = BatchReader().read(encoded(real=24))
    assert (amount.looked_at, amount.real) == (128, 96)


def test_batches_without_text_do_not_count_among_those_whose_masks_are_counted():
    reader = BatchReader()
    for _ in range(40):
        reader.read(images(4, 3, 8, 8))
    assert reader.read(encoded(real=24)).looked_at == 128


def test_pairs_of_texts_have_their_own_masks():
    pair = {f"{name}_{key}": value for name in ("a", "b") for key, value in encoded(real=24).items() if key != "labels"}
    amount = BatchReader().read(pair)
    assert (amount.samples, amount.tokens, amount.looked_at, amount.real) == (4, 256, 256, 192)


def test_masks_of_later_batches_are_counted_now_and_then():
    reader = BatchReader()
    counted = sum(reader.read(encoded(real=24)).looked_at > 0 for _ in range(160))
    assert counted == 16 + 9


def test_batches_of_one_step_add_up():
    both = BatchAmount(4, 128, 128, 96).plus(BatchAmount(4, 100))
    assert both.form() == {"samples": 8, "tokens": 228, "mask": [128, 96]}


def test_a_step_with_an_unknown_batch_is_not_known():
    assert BatchAmount(4).plus(BatchAmount()).form() == {}


class Loader:
    """Asks for samples by their indices."""


def test_sizes_are_given_in_the_order_in_which_they_were_asked_for_whatever_was_asked_ahead():
    sizes, loader, other = AskedSizes(), Loader(), Loader()
    for asked in ([0, 1, 2], [3, 4, 5], [6]):
        sizes.add(loader, asked, anew=False)
    sizes.add(other, [7, 8], anew=False)
    assert [sizes.take(loader) for _ in range(4)] == [3, 3, 1, None]
    assert sizes.take(other) == 2


def test_a_loader_that_begins_anew_has_forgotten_what_a_broken_epoch_asked_for():
    sizes, loader = AskedSizes(), Loader()
    sizes.add(loader, [0, 1, 2], anew=True)
    sizes.add(loader, [3], anew=False)
    sizes.add(loader, [0, 1], anew=True)
    assert [sizes.take(loader), sizes.take(loader)] == [2, None]


def test_a_single_index_is_no_size_and_a_loader_is_kept_by_nothing():
    sizes, loader = AskedSizes(), Loader()
    sizes.add(loader, 7, anew=False)
    assert sizes.take(loader) is None
    del loader
    assert not sizes.queues


def checksums(*batches):
    reader = BatchReader()
    return [reader.read(batch).checksum for batch in batches]


@pytest.mark.parametrize(
    "name", ["images and labels", "a dictionary", "pairs and labels", "one array", "a named tuple"]
)
def test_equal_batches_have_one_checksum_in_two_processes(name):
    batch, _ = SAMPLES[name]
    assert checksums(batch) == checksums(batch)
    assert checksums(batch)[0] is not None


def test_a_batch_that_differs_in_its_labels_alone_has_another_checksum():
    one, other = (images(8, 3, 4, 4), words(8)), (images(8, 3, 4, 4), 2 * words(8))
    assert len(set(checksums(one, other))) == 2


def test_batches_of_one_step_have_a_checksum_of_both_and_the_end_of_an_epoch_changes_none():
    reader = BatchReader()
    one, other = reader.read(words(8)), reader.read(2 * words(8))
    assert one.plus(other).checksum not in {one.checksum, other.checksum, None}
    assert (one.plus(NO_BATCH).checksum, NO_BATCH.plus(one).checksum) == (one.checksum, one.checksum)


@pytest.mark.parametrize(
    "batch", [None, ["a"], np.array([object()]), [object()]], ids=["nothing", "a text", "objects of NumPy", "an object"]
)
def test_what_has_no_numbers_has_no_checksum(batch):
    assert checksums(batch) == [None]


def test_later_batches_are_not_compared():
    reader = BatchReader()
    found = [reader.read(words(8)).checksum is not None for _ in range(COMPARED + 2)]
    assert found == [True] * COMPARED + [False] * 2


@pytest.mark.parametrize(
    ("rows", "size", "expected"),
    [(16, 8, (16, 8)), (8, 8, (8, None)), (None, 8, (8, None)), (8, None, (8, None))],
    ids=["pairs", "as asked", "not shown", "not asked by samples"],
)
def test_a_batch_with_other_rows_than_it_was_asked_to_have_keeps_both(rows, size, expected):
    amount = BatchAmount(rows)
    amount.ask(size)
    assert (amount.samples, amount.form().get("asked")) == expected


NOT_LED_BY_SAMPLES = {
    "lists of images and of records": ({"inputs": [images(3, 8, 8)] * 16, "samples": [words(1)] * 16}, 16, 16),
    "images of four channels": ({"inputs": [images(4, 8, 8)] * 16, "labels": words(16)}, 16, 16),
    "images of which some were left out": ({"inputs": [images(3, 8, 8)] * 14}, 16, 14),
    "as many boxes as channels": (((images(3, 8, 8),) * 8, ({"boxes": images(3, 4), "labels": words(3)},) * 8), 8, 8),
    "pairs of arrays that were not joined": ([(images(8), images(1)[0])] * 16, 16, 16),
    "arrays that were not joined": ([images(80)] * 16, 16, 16),
    "texts that begin with time": ((words(10, 32), words(10, 32)), 32, 32),
    "sound that begins with time": ((images(10, 32, 40), words(10, 32)), 32, 32),
}
LED_BY_SAMPLES = {
    "some were left out": ((images(14, 3, 8, 8), words(14)), 16, 14),
    "views, of which some were left out": ([[images(6, 3, 8, 8)] * 8, words(6)], 16, 6),
    "features as many as were asked for": ((images(14, 16), words(14)), 16, 14),
    "some were left out, beside an object": ([images(14, 16), Unreadable()], 16, 14),
    "features of an autoencoder": ((images(14, 15), images(14, 15)), 16, 14),
}


@pytest.mark.parametrize(
    ("batch", "size", "samples"), [*NOT_LED_BY_SAMPLES.values(), *LED_BY_SAMPLES.values()],
    ids=[*NOT_LED_BY_SAMPLES, *LED_BY_SAMPLES],
)  # fmt: skip
def test_a_leading_dimension_that_is_none_of_samples_shows_by_what_the_loader_was_asked_for(batch, size, samples):
    amount = BatchReader().read(batch)
    amount.ask(size, batch)
    assert amount.samples == samples


def test_what_batches_were_asked_to_have_adds_up_over_a_step():
    first, second = BatchAmount(16), BatchAmount(8)
    first.ask(8)
    second.ask(8)
    assert NO_BATCH.plus(first).plus(second).form()["asked"] == 16


@pytest.mark.parametrize("name", SAMPLES)
def test_a_batch_of_a_known_form_is_read_as_at_first(name):
    reader, (batch, _) = BatchReader(), SAMPLES[name]
    first, later = (reader.read(batch).form() for _ in range(2))
    assert later == first


def test_arrays_of_another_shape_or_type_are_another_form():
    reader = BatchReader()
    batches = [(words(4, 32), words(4)), (words(8, 32), words(8)), (words(4, 32, kind=np.float32), words(4))]
    assert [reader.read(each).tokens for each in (*batches, *batches)] == 2 * [128, 256, None]
