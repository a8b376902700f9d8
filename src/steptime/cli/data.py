"""``steptime data``: real images that need no download."""

import re
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from steptime.catalog.choices import LOADERS
from steptime.cli.console import stderr_console
from steptime.cli.progress import LiveObserver
from steptime.cli.streams import say
from steptime.datasets.atomic_writes import require_space
from steptime.datasets.builtins import BUILTINS
from steptime.datasets.creation import chosen_parameters, expected_bytes, open_dataset
from steptime.datasets.creation import make as make_dataset
from steptime.datasets.folder_entries import write_pictures
from steptime.datasets.stored_forms import store, stored_bytes
from steptime.errors import DatasetError, UsageError, choices_message
from steptime.execution.progress import SampleProgress
from steptime.runner.preparation import data_interpreter, prepare_datasets
from steptime.units import format_bytes

app = typer.Typer(no_args_is_help=True)
_FOLDER = "folder"
FORMS = (_FOLDER, "webdataset", "recordio", "tfrecord", "cached")
"""A folder of pictures, and the loaders that read images in a stored form, which they give their name."""


def _complete_dataset() -> list[str]:
    return list(BUILTINS)


@app.command()
def make(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET... [DIR]",
            help="Datasets of steptime list datasets, or one of them and the folder to write it to.",
            autocompletion=_complete_dataset,
        ),
    ],
    images: Annotated[int | None, typer.Option(min=1, help="How many images; only with DIR.")] = None,
    size: Annotated[str | None, typer.Option(metavar="WxH", help="Width and height; only with DIR.")] = None,
    to: Annotated[str, typer.Option(metavar="FORM", help=f"How DIR stores them: {', '.join(FORMS)}.")] = _FOLDER,
) -> None:
    """Make built-in datasets: in the cache, as studies do by themselves, or one of them in a folder of your own."""
    folder = Path(names[-1]) if len(names) > 1 and names[-1] not in BUILTINS else None
    chosen = names[:-1] if folder else names
    mistakes = [choices_message("dataset", name, BUILTINS) for name in chosen if name not in BUILTINS]
    if folder and len(chosen) > 1:
        mistakes.append(f"{folder} takes one dataset; {len(chosen)} are named")
    if not folder and (images is not None or size is not None or to != _FOLDER):
        mistakes.append("--images, --size and --to need a folder: steptime data make photos ./my-photos --images 5000")
    if to not in FORMS:
        mistakes.append(choices_message("form", to, FORMS))
    pixels = _read_pixels(size, mistakes)
    if mistakes:
        raise UsageError(mistakes)
    if folder:
        if to == _FOLDER:
            _make_folder(chosen[0], folder, images, pixels)
        else:
            _make_stored(chosen[0], folder, to, images, pixels)
    else:
        _make_in_cache(chosen)


def _read_pixels(size: str | None, mistakes: list[str]) -> tuple[int, int] | None:
    sides = re.fullmatch(r"(\d{1,5})x(\d{1,5})", size) if size else None
    if size and not sides:
        mistakes.append(f"{size!r} is not a size; write width and height in pixels, such as 500x375")
    return (int(sides[1]), int(sides[2])) if sides else None


def _make_in_cache(names: list[str]) -> None:
    with LiveObserver(stderr_console()) as observer:
        datasets = prepare_datasets(set(names), observer)
    for name in names:
        dataset = datasets[name]
        say(f"{name}: {dataset.samples} {'tokens' if dataset.form == 'tokens' else 'samples'}, {dataset.path}")


def _make_folder(name: str, folder: Path, images: int | None, pixels: tuple[int, int] | None) -> None:
    with LiveObserver(stderr_console()) as observer:
        count, total = _write_folder(name, folder, images, pixels, observer)
    written = f"./{folder}" if not folder.is_absolute() and not str(folder).startswith(".") else str(folder)
    say(f"{name}: {count} images, {format_bytes(total)}; in a study, 'dataset: {written}'")


def _make_stored(name: str, folder: Path, to: str, images: int | None, pixels: tuple[int, int] | None) -> None:
    """Make a folder of pictures next to ``folder``, store it there in its form, and remove it."""
    folder, form = folder.absolute(), str(LOADERS[to].form)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.pictures-") as place,
            LiveObserver(stderr_console()) as observer,
        ):
            pictures = Path(place) / name
            count, _ = _write_folder(name, pictures, images, pixels, observer)
            dataset = open_dataset(str(pictures), Path(place) / "cache")
            size = format_bytes(stored_bytes(dataset, form))
            observer.note(f"{name}: about {size} as {to}, into {folder}")
            stored = store(dataset, form, folder, SampleProgress(observer, f"Storing {name} as {to}"))
    except OSError as error:
        message = f"{name} cannot be written to {folder}: {error.strerror or error}; choose another folder"
        raise DatasetError(message) from error
    say(f"{name}: {count} images as {to}, {format_bytes(stored.bytes)}, {folder}")


def _write_folder(
    name: str, folder: Path, images: int | None, pixels: tuple[int, int] | None, observer: LiveObserver
) -> tuple[int, int]:
    """Write a folder of pictures; return how many there are, and their bytes."""
    builtin = BUILTINS[name]
    if builtin.form == "tokens":
        message = f"{name} has no images to write; 'steptime data make {name}' makes it in the cache"
        raise DatasetError(message)
    if builtin.form == "arrays":
        dataset = prepare_datasets([name], observer)[name]
        count = min(images or dataset.samples, dataset.samples)
        if images is not None and images > count:
            observer.note(f"{name} has {count} samples, and no more can be made")
        return count, write_pictures(dataset, folder, pixels, count, SampleProgress(observer, f"Writing {name}"))
    parameters = {} if images is None else {"count": images}
    parameters |= {} if pixels is None else {"width": pixels[0], "height": pixels[1]}
    chosen = chosen_parameters(builtin, parameters)
    interpreter = data_interpreter(observer)
    expected = expected_bytes(name, interpreter, **parameters)
    if expected is not None:
        observer.note(f"{name}: {chosen['count']} images, about {format_bytes(expected)}, into {folder}")
        require_space(name, folder, expected)
    made = make_dataset(name, folder, interpreter, SampleProgress(observer, f"Making {name}"), **parameters)
    return made.samples, made.bytes
