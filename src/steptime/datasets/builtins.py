"""The datasets that steptime or a plug-in makes, and the environment in which their makers run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from steptime.catalog.plugins import Registry

_MAKERS = Path(__file__).parent / "makers"

REQUIREMENTS = _MAKERS / "requirements.txt"
"""Of the environment whose interpreter runs the makers."""
PYTHONS = ("3.11", "3.12", "3.13")
"""Versions that have these requirements, preferred first."""
VERIFY = "import numpy, PIL.Image; import importlib.util as u; assert u.find_spec('skimage') and u.find_spec('sklearn')"
"""Fails where the environment does not work."""


@dataclass(frozen=True)
class Builtin:
    """A dataset that is made on this machine by a program, without any download of its own."""

    name: str
    title: str
    source: str
    licence: str
    form: Literal["arrays", "image_folder", "tokens"]
    samples: int
    """With the default parameters; of ``tokens``, how many tokens."""
    classes: tuple[str, ...]
    input_shape: tuple[int, ...] | None
    maker: Path
    """The program that makes it, run with ``{"folder": …, parameters}`` as its one argument, in the environment of
    ``REQUIREMENTS``. Lines ``progress DONE TOTAL`` of its output say how far it is."""
    parameters: Mapping[str, int] = field(default_factory=dict)
    """What a user may choose, with the defaults."""


_DIGITS = Builtin(
    name="digits",
    title="1797 handwritten digits, 28x28, grey",
    source=(
        "Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, UCI repository, 1998), as shipped in "
        "scikit-learn: 8x8, here enlarged to 20x20 within 28x28"
    ),
    licence="CC BY 4.0",
    form="arrays",
    samples=1797,
    classes=tuple("0123456789"),
    input_shape=(1, 28, 28),
    maker=_MAKERS / "digits.py",
)

_PHOTOS = Builtin(
    name="photos",
    title="1800 JPEG photographs of 18 classes, 96x96, colour",
    source=(
        "pieces of 18 pictures shipped in scikit-image (astronaut: NASA; galaxies: NASA/ESA Hubble; rocket: SpaceX; "
        "coins: Brooklyn Museum; tissue: CMMI; and others) and scikit-learn (china, flower)"
    ),
    licence=(
        "public domain, CC0 or without known restrictions; china (danielbuechele) and flower (vultilion): CC BY 2.0"
    ),
    form="image_folder",
    samples=1800,
    classes=(
        "astronaut",
        "brick",
        "camera",
        "cat",
        "china",
        "clock",
        "coffee",
        "coins",
        "flower",
        "galaxies",
        "grass",
        "gravel",
        "moon",
        "page",
        "retina",
        "rocket",
        "text",
        "tissue",
    ),
    input_shape=None,
    maker=_MAKERS / "photos.py",
    parameters={"count": 1800, "width": 96, "height": 96, "seed": 0},
)

_TEXT = Builtin(
    name="text",
    title="400000 bytes of English text",
    source="topics of the Python language reference, as shipped in Python's pydoc_data",
    licence="Python Software Foundation License 2",
    form="tokens",
    samples=400_000,
    classes=tuple(f"{byte:#04x}" for byte in range(256)),
    input_shape=None,
    maker=_MAKERS / "text.py",
)

BUILTINS = Registry(
    "dataset",
    {builtin.name: builtin for builtin in (_DIGITS, _PHOTOS, _TEXT)},
    lambda found: isinstance(found, Builtin),
    "a steptime.datasets.builtins.Builtin",
)
"""By name: steptime's own, then those of plug-ins."""


def names() -> list[str]:
    """Return the names of the built-in datasets."""
    return list(BUILTINS)
