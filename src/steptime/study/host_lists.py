"""Lists of hosts in the notation of Slurm and pdsh: ``n[0-3,7]`` are n0, n1, n2, n3 and n7, ``n[08-10]`` n08 to n10."""

import itertools
import math
import re
from typing import Any

MOST_HOSTS = 1024


_COMMA = re.compile(r",(?![^\[\]]*\])")
"""One outside of brackets."""


_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def split_hosts(text: str) -> list[str]:
    """Return the parts of a list that commas separate, except those in brackets."""
    return [part.strip() for part in _COMMA.split(text)]


def expanded_hosts(text: str) -> list[str]:
    """Return the names of hosts that a list stands for, in its order; a name without brackets stands for itself.

    Raises ValueError with what is wrong where the brackets hold no numbers, and for more than ``MOST_HOSTS`` hosts.
    """
    found: list[str] = []
    for part in split_hosts(text):
        fixed, brackets = _BRACKETS.sub("", part), _BRACKETS.findall(part)
        if "[" in fixed or "]" in fixed:
            raise _no_list(text, "its brackets do not match")
        ranges = [[_numbers(text, each) for each in held.split(",")] for held in brackets]
        count = len(found) + math.prod(sum(len(numbers) for numbers, _ in each) for each in ranges)
        if count > MOST_HOSTS:
            raise _no_list(text, f"it names {count} hosts, and a study has at most {MOST_HOSTS}")
        choices = [[f"{number:0{width}}" for numbers, width in each for number in numbers] for each in ranges]
        pieces = _BRACKETS.sub("\0", part).split("\0")
        found += [
            "".join(itertools.chain(*itertools.zip_longest(pieces, chosen, fillvalue="")))
            for chosen in itertools.product(*choices)
        ]
    return found


def _numbers(text: str, written: str) -> tuple[range, int]:
    """Return the numbers of a range such as ``08-10``, and how many digits each has at least."""
    match = _RANGE.fullmatch(written.strip())
    if match is None:
        raise _no_list(text, f"{written!r} is not a number and no range of numbers")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise _no_list(text, f"the range {written!r} ends before it begins")
    return range(int(first), int(last) + 1), len(first)


def _no_list(text: str, reason: str) -> ValueError:
    return ValueError(f"{text!r} is not a list of hosts: {reason}; write for example n[0-3,7] or n[00-15]")


def from_names(value: Any) -> Any:  # noqa: ANN401
    """Return the mapping that a bare list of names stands for, or names that commas separate, as on a command line."""
    if isinstance(value, str):
        return {"names": split_hosts(value)}
    return {"names": value} if isinstance(value, list) else value
