"""Numbers of a user's objects: an address is used again, a number is not."""

import gc

import pytest

from steptime.attach.object_numbers import ObjectNumbers


class Plain:
    """What takes a weak reference."""


class Loader:
    """What holds a data set."""

    def __init__(self, data):
        self.data = data


class EqualToAll(Plain):
    """What is not to be compared or hashed."""

    __hash__ = None

    def __eq__(self, other):
        raise AssertionError


class InACycle(Plain):
    """What goes with a collection of garbage."""

    def __init__(self):
        self.own = self


MADE = {
    "plain": Plain,
    "compared by code of its own": EqualToAll,
    "in a cycle": InACycle,
    "list": lambda: [0.0] * 50,
    "tuple": lambda: tuple(range(50)),
    "range": lambda: range(1000, 2000),
    "dictionary": lambda: {"x": 0.0},
}


def numbered(numbers, made):
    """Return the address and the number of what a loader holds, both gone when it returns."""
    loader = Loader(made())
    found = id(loader.data), numbers.of(loader.data, loader)
    if made is InACycle:
        del loader
        gc.collect(0)
    return found


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_what_takes_the_address_of_another_has_a_number_of_its_own(made):
    numbers = ObjectNumbers()

    found = [numbered(numbers, made) for _ in range(10)]

    assert len({address for address, _ in found}) < 10  # an address was used again
    assert len({number for _, number in found}) == 10


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_what_lives_keeps_its_number(made):
    numbers, loader = ObjectNumbers(), Loader(made())

    assert {numbers.of(loader.data, loader) for _ in range(3)} == {1}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_nothing_is_kept_of_what_is_gone(made):
    numbers = ObjectNumbers()
    numbered(numbers, made)

    assert numbers.known == {}


def test_a_list_keeps_its_number_from_one_holder_to_the_next():
    numbers, data = ObjectNumbers(), [1.0]
    first = Loader(data)
    second = Loader(data)

    assert numbers.of(data, first) == numbers.of(data, second)
    del first
    assert numbers.of(data, second) == numbers.of(data, Loader(data)) == 1


def test_what_takes_no_reference_and_is_held_by_nothing_that_does_has_no_number():
    with pytest.raises(TypeError):
        ObjectNumbers().of([1.0], [2.0])
