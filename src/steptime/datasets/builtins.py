"""The built-in datasets, and what the environment that makes them must have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_MAKERS = Path(__file__).parent / "makers"

REQUIREMENTS = _MAKERS / "requirements.txt"
"""Of the environment whose interpreter runs the makers."""
PYTHONS = ("3.11", "3.12", "3.13")
"""Versions that have these requirements, preferred first."""
VERIFY = "import numpy, PIL.Image; import importlib.util as u; assert u.find_spec('skimage') and u.find_spec('sklearn')"
"""Fails where the environment does not work."""


@dataclass(frozen=True)
class Builtin:
    """A dataset that steptime makes on this machine, without any download of its own."""

    name: str
    title: str
    source: str
    licence: str
    form: Literal["arrays", "image_folder"]
    samples: int
    """With the default parameters."""
    classes: tuple[str, ...]
    input_shape: tuple[int, ...] | None
    parameters: Mapping[str, int] = field(default_factory=dict)
    """What a user may choose, with the defaults."""

    @property
    def maker(self) -> Path:
        """The program that makes it."""
        return _MAKERS / f"{self.name}.py"


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
    parameters={"count": 1800, "size": 96, "seed": 0},
)

BUILTINS: Mapping[str, Builtin] = {builtin.name: builtin for builtin in (_DIGITS, _PHOTOS)}


def names() -> list[str]:
    """Return the names of the built-in datasets."""
    return list(BUILTINS)
