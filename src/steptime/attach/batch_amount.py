"""How many samples and tokens a batch holds, by the shapes of its arrays, and a checksum of its first values.

No array on a device is read.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections import deque
from typing import Any, Iterator
from weakref import WeakKeyDictionary, ref

from .patches import raised_by_signal_handler

# Containers inside of a batch are looked into as deep, for as many arrays.
DEPTH, ARRAYS = 3, 16
# The first masks are counted, then one of so many, where they are not larger.
COUNTED_ALWAYS, COUNTED_EVERY, LARGEST_MASK = 16, 16, 1 << 20
# First batches that have a checksum, and values of each of their first arrays that it is of.
COMPARED, VALUES, COMPARED_ARRAYS = 32, 4096, 4
IDENTIFIERS, MASK = "input_ids", "attention_mask"
# Texts beside the first, of another length where an encoder reads that and a decoder writes these.
TARGETS = ("labels", "decoder_input_ids")
# Libraries whose arrays have a shape that costs nothing to read.
LIBRARIES = ("torch", "numpy", "tensorflow", "jax", "jaxlib", "torchvision", "mxnet", "paddle")
INTEGERS = ("int64", "int32", "int16", "uint16")
CHANNELS = (1, 3)
PLAIN = (int, float, str, bytes)
# Batches of so many forms are read at once when they come again.
FORMS = 64
# Batches asked for and not yet given, of one loader.
AHEAD = 1024
# Tokens that a row of integers has at least, where nothing else shows that it is text.
SHORTEST = 16


class BatchAmount:
    """Samples and tokens of a batch (None if they cannot be told), and the real ones of the tokens looked at.

    ``asked`` is for how many samples its loader was asked, where arrays have another number of rows, as of pairs;
    ``targets`` are tokens of a second text of another length;
    ``checksum`` is of its values, so that ranks that read the same batches are seen;
    ``single`` is whether it looks like one sample, which only what goes forward shows; so do ``rows`` that its first
    and last arrays share and others do not: they are its samples, where as many go forward.
    """

    __slots__ = ("asked", "checksum", "looked_at", "real", "rows", "samples", "single", "targets", "tokens")

    def __init__(
        self, samples: int | None = None, tokens: int | None = None, looked_at: int = 0, real: int = 0, rows: int = 0
    ) -> None:
        self.samples = samples
        self.tokens = tokens
        self.looked_at = looked_at
        self.real = real
        self.asked: int | None = None
        self.targets = 0
        self.checksum: int | None = None
        self.single = False
        self.rows = rows

    def copy(self) -> BatchAmount:
        """Return another with the same values."""
        return self.plus(NO_BATCH)

    def ask(self, size: int | None, batch: Any = None) -> None:
        """Note that the ``batch`` was asked to have ``size`` samples; one sample may be a whole batch of its data set.

        Where its arrays have another leading dimension, that may be none of samples.
        """
        if size is not None and size > 1:
            self.rows = 0
            if self.samples is not None and self.samples != size:
                try:
                    with _functions_of_torch_alone():
                        self.samples = _samples_otherwise(batch, self.samples, size)
                except Exception as error:
                    if raised_by_signal_handler(error):
                        raise
        if self.samples is None:
            self.samples = size
        elif size is not None and size != self.samples:
            self.asked = size

    def plus(self, other: BatchAmount) -> BatchAmount:
        """Return what two batches of one step hold."""
        samples = None if self.samples is None or other.samples is None else self.samples + other.samples
        tokens = None if self.tokens is None or other.tokens is None else self.tokens + other.tokens
        both = BatchAmount(samples, tokens, self.looked_at + other.looked_at, self.real + other.real)
        both.targets = self.targets + other.targets
        both.single = self.single or other.single
        if NO_BATCH in (self, other) or (self.rows and other.rows):
            both.rows = self.rows + other.rows
        if self.asked is not None or other.asked is not None:
            both.asked = sum((each.asked if each.asked is not None else each.samples) or 0 for each in (self, other))
        if other is NO_BATCH or self is NO_BATCH:
            both.checksum = self.checksum if other is NO_BATCH else other.checksum
        elif self.checksum is not None and other.checksum is not None:
            both.checksum = zlib.crc32(b"%d" % other.checksum, self.checksum)
        return both

    def beside(self, other: BatchAmount) -> BatchAmount:
        """Return what two texts of the same samples hold."""
        both = self.plus(other)
        both.samples = self.samples if self.samples == other.samples else None
        return both

    def form(self) -> dict[str, Any]:
        """Return what the line of a step has of it."""
        line: dict[str, Any] = {}
        if self.samples is not None:
            line["samples"] = self.samples
        if self.asked is not None:
            line["asked"] = self.asked
        if self.tokens is not None:
            line["tokens"] = self.tokens
        if self.targets:
            line["targets"] = self.targets
        if self.looked_at:
            line["mask"] = [self.looked_at, self.real]
        if self.checksum is not None:
            line["content"] = self.checksum
        return line


# Of a request that ended an epoch.
NO_BATCH = BatchAmount(0, 0)


class AskedSizes:
    """How many samples each batch was asked to have, of loaders that name them: for batches that do not show it.

    Graphs that were joined, packed sequences and a library's own objects have no dimension of samples.
    """

    def __init__(self) -> None:
        self.queues: WeakKeyDictionary[Any, deque[int]] = WeakKeyDictionary()
        self.loader: ref[Any] | None = None  # the one that was asked for last, with its queue
        self.queue: deque[int] | None = None
        self.latest: int | None = None

    def add(self, loader: Any, indices: Any, *, anew: bool) -> None:
        """Note that ``loader`` asked for samples ``indices``; ``anew`` if nothing asked for before will be given."""
        queue = self._queue_of(loader)
        if queue is None:
            queue = self.queues[loader] = deque(maxlen=AHEAD)
        if anew:
            queue.clear()
        if isinstance(indices, (list, tuple)):
            queue.append(len(indices))

    def _queue_of(self, loader: Any) -> deque[int] | None:
        if self.loader is None or self.loader() is not loader:
            self.queue = self.queues.get(loader)
            self.loader = None if self.queue is None else ref(loader)
        return self.queue

    def take(self, loader: Any) -> int | None:
        """Return the size of the batch that ``loader`` gave, or None if it was not asked for by samples."""
        queue = self._queue_of(loader)
        self.latest = queue.popleft() if queue else None
        return self.latest

    def matches(self, loader: Any, size: int | None) -> bool:
        """Take the size of the batch that ``loader`` gave if that is ``size``; return whether it is."""
        queue = self._queue_of(loader)
        if not queue:
            return size is None
        if queue[0] != size:
            return False
        queue.popleft()
        return True


class BatchReader:
    """Reads the batches of the loaders of a process."""

    def __init__(self) -> None:
        self.texts = self.batches = 0
        self.form: tuple[Any, ...] | None = None  # of the latest batch, once its values are looked at no more
        self.array_types: dict[type, bool] = {}
        self.derived: set[type] = set()  # types of arrays that a library has made of another's
        self.integer_types: dict[Any, bool] = {}
        self.forms: dict[tuple[Any, ...], BatchAmount] = {}  # of known batches

    def read(self, batch: Any) -> BatchAmount:
        """Return what ``batch`` holds; nothing where it is of no known form."""
        amount = BatchAmount()
        try:
            form = self.form_of(batch)
            known = self.forms.get(form) if form else None
            if known is not None:
                amount = known.copy()
            else:
                with _functions_of_torch_alone():
                    amount = self._read(batch)
                if form and len(self.forms) < FORMS:
                    self.forms[form] = amount.copy()
            self.batches += 1
            if self.batches <= COMPARED:
                amount.checksum = self.checksum(batch)
            else:
                self.form = form
        except Exception as error:
            if raised_by_signal_handler(error):
                raise
        return amount

    def form_of(self, batch: Any) -> tuple[Any, ...] | None:
        """Return the shapes and types of a list of a few arrays, by which alone it is read; None of any other batch."""
        if batch.__class__ not in (list, tuple) or len(batch) > COMPARED_ARRAYS:
            return None
        form: list[Any] = []
        for each in batch:
            if not self.array_types.get(each.__class__) or each.__class__ in self.derived:
                return None
            form += (each.__class__, tuple(each.shape), each.dtype)
        return (batch.__class__, *form)

    @staticmethod
    def has_form(batch: Any, form: tuple[Any, ...]) -> bool:
        """Return whether ``batch`` has a ``form`` of `form_of`, of which none has to be made."""
        if batch.__class__ is not form[0] or 3 * len(batch) + 1 != len(form):
            return False
        at = 1
        for array in batch:
            if array.__class__ is not form[at] or array.shape != form[at + 1] or array.dtype != form[at + 2]:
                return False
            at += 3
        return True

    def checksum(self, batch: Any) -> int | None:
        """Return a checksum of the first values of the first arrays, or None if one of them cannot be read."""
        checksum, arrays = 0, 0
        for array in self._arrays(batch, DEPTH):
            values = on_host(array)
            if values is None or values.dtype.hasobject:
                return None
            checksum = zlib.crc32(values.flat[:VALUES].tobytes(), checksum)
            arrays += 1
            if arrays == COMPARED_ARRAYS:
                break
        return checksum if arrays else None

    def _read(self, batch: Any) -> BatchAmount:
        shapes: list[tuple[int, ...]] = []
        arrays = []
        for array in self._arrays(batch, DEPTH):
            shape = tuple(array.shape)
            if shape:
                shapes.append(shape)
                arrays.append(array)
            if len(arrays) == ARRAYS:
                break
        named = _named(batch)
        identifiers = dict.get(named, IDENTIFIERS) if named is not None else None
        if identifiers is not None and self._is_array(identifiers):
            self.texts += 1
            return self._text(tuple(identifiers.shape), named)
        if named is not None and (texts := self._several_texts(named)):
            return texts
        samples = _leading(batch, shapes)
        amount = BatchAmount(samples, self._tokens(arrays, shapes, samples))
        amount.rows = _rows_at_ends(shapes) if samples is None else 0
        amount.single = len(shapes) == 1 and bool(_form_of_sample(batch, arrays=True))
        return amount

    def _tokens(self, arrays: list[Any], shapes: list[tuple[int, ...]], samples: int | None) -> int | None:
        """Return the size of a first array of integers with a row for each sample.

        Few columns are as likely categories, unless the labels have the same form, as of the next token.
        """
        if not shapes or len(shapes[0]) != 2 or shapes[0][0] != samples or not self._is_integer(arrays[0]):  # noqa: PLR2004
            return None
        labelled = len(shapes) > 1 and shapes[1] == shapes[0] and self._is_integer(arrays[1])
        length = int(shapes[0][1])
        return samples * length if length >= SHORTEST or (labelled and length > 1) else None

    def _several_texts(self, named: dict[Any, Any]) -> BatchAmount | None:
        """Return what a batch of pairs or triples of texts holds, `anchor_input_ids` and `positive_input_ids`."""
        amount = None
        for name, array in dict.items(named):
            if isinstance(name, str) and name.endswith("_" + IDENTIFIERS) and self._is_array(array):
                prefix = name[: -len(IDENTIFIERS)]
                self.texts += amount is None
                text = self._text(tuple(array.shape), {MASK: dict.get(named, prefix + MASK)})
                amount = text if amount is None else amount.beside(text)
        return amount

    def _text(self, shape: tuple[int, ...], named: Any) -> BatchAmount:
        tokens = 1
        for length in shape:
            tokens *= int(length)
        amount = BatchAmount(int(shape[0]) if len(shape) > 1 else None, tokens)
        amount.targets = self._targets(shape, named)
        mask = dict.get(named, MASK)
        if mask is None:
            return amount
        counted = self.texts <= COUNTED_ALWAYS or self.texts % COUNTED_EVERY == 0
        if counted and tokens <= LARGEST_MASK and self._is_array(mask) and tuple(mask.shape) == shape:
            real = _count_real(mask)
            if real is not None:
                amount.looked_at, amount.real = tokens, real
        return amount

    def _targets(self, shape: tuple[int, ...], named: Any) -> int:
        """Return the tokens of a second text of another ``shape``; 0 without one."""
        for name in TARGETS:
            target: Any = dict.get(named, name)
            if self._is_array(target) and len(target.shape) == 2 and self._is_integer(target):  # noqa: PLR2004
                return 0 if tuple(target.shape) == shape else int(target.shape[0] * target.shape[1])
        return 0

    def _arrays(self, item: Any, depth: int) -> Iterator[Any]:
        if self._is_array(item):
            yield item
        elif depth:
            named = _named(item)
            inner = dict.values(named) if named is not None else item if isinstance(item, (list, tuple)) else ()
            for inside in list(inner)[:ARRAYS]:
                yield from self._arrays(inside, depth - 1)

    def _is_array(self, item: Any) -> bool:
        kind = item.__class__
        known = self.array_types.get(kind)
        if known is None:
            own, *others = [(getattr(each, "__module__", "") or "").partition(".")[0] for each in kind.__mro__]
            known = hasattr(kind, "shape") and hasattr(kind, "dtype")
            if known and own not in LIBRARIES:
                known = any(each in LIBRARIES for each in others)
                self.derived.add(kind)
            self.array_types[kind] = known
        return known

    def _is_integer(self, array: Any) -> bool:
        kind = array.dtype
        known = self.integer_types.get(kind)
        if known is None:
            known = self.integer_types[kind] = getattr(kind, "name", str(kind)).rpartition(".")[2] in INTEGERS
        return known


def _functions_of_torch_alone() -> Any:
    """Return a context in which shapes of arrays that are derived from torch's call none of their own functions."""
    library = getattr(sys.modules.get("torch"), "_C", None)
    name = "DisableTorchFunctionSubclass"  # of torch 2.0 and later
    return getattr(library, name)() if hasattr(library, name) else contextlib.nullcontext()


def _rows_at_ends(shapes: list[tuple[int, ...]]) -> int:
    """Return the rows that the first and the last of several arrays share, of sparse features in between; else 0.

    A single graph has them as well, one for each node: two rows of its edges show it.
    """
    rows = shapes[0][0] if len(shapes) > 2 and shapes[0][0] == shapes[-1][0] else 0  # noqa: PLR2004 - others in between
    edges = any(len(shape) == 2 and shape[0] == 2 and shape[1] != rows for shape in shapes)  # noqa: PLR2004
    return 0 if edges else int(rows)


def _named(item: Any) -> dict[Any, Any] | None:
    """Return the arrays of a batch by name: a dictionary, or what a tokenizer's BatchEncoding keeps."""
    if isinstance(item, dict):
        return item
    data = vars(item).get("data") if hasattr(item, "__dict__") and hasattr(item.__class__, "keys") else None
    return data if isinstance(data, dict) else None


def _leading(batch: Any, shapes: list[tuple[int, ...]]) -> int | None:
    """Return the number of samples, the leading dimension that all arrays share, or the length that all lists share."""
    forms = {_form_of_sample(sample, arrays=bool(shapes)) for sample in batch} if isinstance(batch, list) else {()}
    if len(forms) == 1 and () not in forms:
        return len(batch)
    leading = {shape[0] for shape in shapes}
    if len(leading) == 1 and not _is_list_of_images(batch, shapes):
        return int(leading.pop())
    lists = batch if isinstance(batch, (list, tuple)) else ()
    lengths = {len(one) if isinstance(one, (list, tuple)) else -1 for one in lists}
    return lengths.pop() if len(lengths) == 1 and min(lengths) > 0 else None


def _samples_otherwise(batch: Any, samples: int, size: int) -> int:
    """Return how many samples a ``batch`` has whose loader was asked for ``size``, and whose arrays show ``samples``.

    One of lists has as many as these are long, if they have an array for each sample (of images, fewer may be left);
    one whose arrays begin with time has as many as their second dimension.
    """
    named = _named(batch)
    inner = list(dict.values(named)) if named is not None else batch if isinstance(batch, (list, tuple)) else ()
    lengths = _lengths_of_lists(inner, own=named is None)
    fewer = [length for length in lengths if samples in CHANNELS and samples < length < size]
    if size in lengths or fewer:
        return size if size in lengths else max(fewer)
    shapes = [tuple(one.shape) for one in inner if hasattr(one, "shape") and hasattr(one, "dtype")]
    in_time = samples < size and len(shapes) > 1 and all(len(shape) > 1 and shape[1] == size for shape in shapes)
    return size if in_time else samples


def _lengths_of_lists(inner: Any, *, own: bool) -> set[int]:
    """Return the length that all lists ``inner`` share, and that of the list they are in, if it is its ``own``."""
    lengths = {len(one) for one in inner if isinstance(one, (list, tuple))}
    lengths = lengths if len(lengths) == 1 else set()
    if own and len({_kind_of_item(one) for one in inner}) == 1:
        lengths.add(len(inner))
    return lengths


def _kind_of_item(item: Any) -> tuple[Any, ...]:
    """Return by what the samples of a list are alike: class, names or length, and of an array dimensions and type."""
    if isinstance(item, dict):
        return (item.__class__, *item)
    if isinstance(item, (list, tuple)):
        return item.__class__, len(item)
    return item.__class__, len(getattr(item, "shape", ())), getattr(item, "dtype", None)


def _form_of_sample(item: Any, *, arrays: bool) -> tuple[Any, ...]:
    """Return what a single sample has, a record or one with a plain value beside ``arrays``; nothing of a batch."""
    if isinstance(item, dict) and not arrays:
        return tuple(item)
    values = dict.values(item) if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else ()
    plain = [isinstance(value, PLAIN) for value in values]
    return tuple(plain) if any(plain) and not all(plain) else ()


def _is_list_of_images(batch: Any, shapes: list[tuple[int, ...]]) -> bool:
    """Return whether arrays may be samples that were not put into one: their leading dimension is that of channels."""
    return isinstance(batch, (list, tuple)) and all(len(shape) == 3 and shape[0] in CHANNELS for shape in shapes)  # noqa: PLR2004


def _count_real(mask: Any) -> int | None:
    """Return how many positions of a mask are not 0, without an operation of torch; None on a device."""
    values = on_host(mask)
    return None if values is None else int((values != 0).sum())


def on_host(array: Any) -> Any:
    """Return ``array`` as one of NumPy's that shares its memory, None of one on a device or of another library."""
    kind = array.__class__
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        return array.numpy() if array.device.type == "cpu" else None
    return array if kind.__module__ == "numpy" else None
