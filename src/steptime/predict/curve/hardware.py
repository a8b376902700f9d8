"""What is believed of hosts and links that a table does not state, by the accelerator, from ``hardware.toml``.

An empty column is not a slow network, nor a fast one: it is a wide belief, and a question to whoever wrote the table.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf

_GIGA = 1e9
_GBIT = 1e9 / 8


@dataclass(frozen=True)
class BelievedRate:
    """Bytes per second, and the standard deviation of the logarithm of how far it is from that; 0 where stated."""

    median: float
    spread: float = 0.0


@dataclass(frozen=True)
class UsualHosts:
    """What hosts of an accelerator usually have."""

    name: str
    hosts: Mapping[float, float]
    """How likely a host holds so many workers; infinitely many where all share one. Adds up to one."""
    network: BelievedRate
    """Of all cards of a host together."""
    cards: int
    cards_spread: float
    """Of the logarithm of their number, where the rate of one is stated and their number is not."""
    links: Mapping[str, BelievedRate]
    """Between two workers of a host, by the name of the link; under the empty name where it has none."""
    shared: Collection[str]
    """Those of the links by which all messages of a host cross one memory."""

    def inside(self, link: str) -> BelievedRate:
        """Return what is believed of a link inside a host, by its name in a table."""
        return self.links.get(link, self.links[""])

    def shares_memory(self, link: str) -> bool:
        """Return whether all messages inside a host cross one memory over that link."""
        return (link if link in self.links else "") in self.shared


def usual_hosts(text: str) -> UsualHosts:
    """Return the accelerator that a table names; spelling does not count, and none is unknown to it."""
    runs = _runs(text)
    return next(found for words, found in _read() if not words or any(_holds(runs, word) for word in words))


def all_usual_hosts() -> tuple[UsualHosts, ...]:
    """Return all that are declared, the unknown one last."""
    return tuple(found for _, found in _read())


_Runs = tuple[str, ...]


def _runs(text: str) -> _Runs:
    """Return the runs of letters and of digits of a text.

    >>> _runs("A100-SXM4")
    ('a', '100', 'sxm', '4')
    """
    return tuple(re.findall(r"[a-z]+|[0-9]+", text.lower()))


def _holds(text: _Runs, word: _Runs) -> bool:
    """Return whether the runs of a word follow each other in a text; the last may go on there."""
    last = len(word) - 1
    return any(
        text[start : start + last] == word[:last] and text[start + last].startswith(word[last])
        for start in range(len(text) - last)
    )


@cache
def _read() -> tuple[tuple[tuple[_Runs, ...], UsualHosts], ...]:
    content = tomllib.loads(files("steptime.predict.curve").joinpath("hardware.toml").read_text("utf-8"))
    return tuple(
        (
            tuple(map(_runs, entry["words"])),
            UsualHosts(
                name=entry["name"],
                hosts={inf if size == "inf" else float(size): share for size, share in entry["hosts"].items()},
                network=BelievedRate(entry["network_gbps"] * _GBIT, entry["network_spread"]),
                cards=entry["cards"],
                cards_spread=entry["cards_spread"],
                links={name: BelievedRate(rate * _GIGA, spread) for name, (rate, spread) in entry["inside"].items()},
                shared=entry.get("shared", ()),
            ),
        )
        for entry in content["accelerator"]
    )
