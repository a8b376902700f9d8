"""Study files: found by a path or by the name of a shipped study, read, and checked for all mistakes at once.

Shipped studies lie in ``steptime/studies`` and in the packages that plug-ins name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import steptime
from steptime.catalog.plugins import OWN, plugins_of, taken_twice
from steptime.catalog.workloads.own_module import find_own_module
from steptime.errors import FileError, PluginError, StudyError, WorkloadError, choices_message
from steptime.file_name import as_file_name, path_mistake
from steptime.plain_file import read_user_text
from steptime.study.contradictions import contradictions
from steptime.study.document import Document, Mistake, read_yaml
from steptime.study.known_names import KnownNames
from steptime.study.mistakes import form_mistakes
from steptime.study.overrides import apply_overrides, apply_scale, scale_mistakes
from steptime.study.quantities import words_of
from steptime.study.study import Study
from steptime.study.unknown_names import environments_of, is_folder, unknown_names

_FOLDER = Path(steptime.__file__).parent / "studies"
_MOST_BYTES = 64 * 1024
"""Of a study file; twenty times the longest that comes with steptime."""


def study_files() -> dict[str, Path]:
    """Return the file of every shipped study by name: steptime's own, then those of plug-ins."""
    return {name: path for name, (path, _) in _shipped().items()}


def study_providers() -> dict[str, str]:
    """Return who brings every shipped study: ``steptime``, or another distribution with its version."""
    return {name: provider for name, (_, provider) in _shipped().items()}


def broken_studies() -> dict[str, str]:
    """Return why the studies of a plug-in cannot be used, by the name of its entry point."""
    causes = {}
    for plugin in plugins_of("studies").values():
        try:
            plugin.folder()
        except PluginError as error:
            causes[plugin.name] = str(error)
    return causes


def shipped_studies() -> dict[str, str]:
    """Return the question of every shipped study, by name."""
    return {
        name: str(read_yaml(path.read_text("utf-8"), path.name).data.get("question", ""))
        for name, path in study_files().items()
    }


def read_study(
    path_or_name: str | Path,
    overrides: Sequence[str] = (),
    known: KnownNames | None = None,
    text: str | None = None,
    paths_from: Path | None = None,
) -> Study:
    """Read a study file and check it.

    Args:
        path_or_name: a file, or the name of a study that ``study_files`` has.
        overrides: ``key.path=value``, each replacing a value of the file.
        known: the names that it may use; those of this installation by default.
        text: of the file, where it has been read; a pipe can be read once only.
        paths_from: the folder at which relative paths in the file start; None for the file's own folder.

    A scale that the study or an override chooses replaces keys of the file, and other overrides win over it.

    Relative paths in overrides start at the current folder.

    Raises StudyError with all mistakes, each with its place, if there is one.
    """
    known = known or KnownNames.installed()
    path, name = _find(str(path_or_name))
    document = read_yaml(_text(path) if text is None else text, name)
    scaled = [override for override in overrides if override.partition("=")[0].strip() == "scale"]
    wrong = apply_overrides(document, scaled)
    apply_scale(document)
    wrong += apply_overrides(document, [override for override in overrides if override not in scaled])
    if "name" not in document.data:
        document.data["name"] = as_file_name(path.stem, "study")
    study, mistakes = _checked(document)
    mistakes = [*document.mistakes, *mistakes, *unknown_names(document, known)]
    mistakes += [*scale_mistakes(document), *contradictions(document, known)]
    if study is None or mistakes or wrong:
        raise StudyError(document.sentences(mistakes) + wrong)
    _anchor_paths(document, paths_from or folder_of_paths(path_or_name))
    return Study.model_validate(document.data)


def study_text(path_or_name: str | Path) -> str:
    """Return what a study file, or the shipped study of that name, says; raises StudyError where it cannot be read."""
    return _text(_find(str(path_or_name))[0])


def folder_of_paths(path_or_name: str | Path) -> Path:
    """Return the folder at which relative paths in a study start: that of its file, or the current one.

    What a shipped study calls the user's folder lies where the user is, and so does that of a study from a pipe.
    """
    path, _ = _find(str(path_or_name))
    own = path.is_file() and path not in study_files().values()
    return path.parent if own else Path.cwd()


def _shipped() -> dict[str, tuple[Path, str]]:
    """The file and the provider of every shipped study; raises PluginError where two have the same name."""
    kind = "study"
    found = {path.stem: (path, OWN) for path in sorted(_FOLDER.glob("*.yaml"))}
    for plugin in plugins_of("studies").values():
        if plugin.name in broken_studies():
            continue
        for path in sorted(plugin.folder().glob("*.yaml")):
            if path.stem in found:
                raise taken_twice(kind, path.stem, found[path.stem][1], plugin.provider)
            found[path.stem] = (path, plugin.provider)
    return found


def _find(path_or_name: str) -> tuple[Path, str]:
    """Return a study's file and what to call it in messages."""
    shipped = study_files()
    if path_or_name in shipped:
        return shipped[path_or_name], shipped[path_or_name].name
    path = Path(path_or_name)
    if path.exists() or "/" in path_or_name:
        return path, path_or_name if path_or_name.isprintable() else repr(path_or_name)
    known = choices_message("study", path_or_name, shipped)
    message = f"{known}; a file of that name is not here either"
    raise StudyError(message)


def _text(path: Path) -> str:
    try:
        return read_user_text(path, _MOST_BYTES)
    except FileError as error:
        if error.line is not None:
            raise StudyError(str(error)) from error
        message = f"{str(path)!r} cannot be read: {error.reason}; the shipped studies are {', '.join(study_files())}"
        raise StudyError(message) from error


def _checked(document: Document) -> tuple[Study | None, list[Any]]:
    try:
        return Study.model_validate(document.data), []
    except ValidationError as error:
        return None, form_mistakes(error)


def _anchor_paths(document: Document, folder: Path) -> None:
    """Make relative paths absolute, so that the study means the same wherever it is resumed."""
    for top in ((), *(path for path, _ in document.each("include"))):
        for path, item in document.each(*top, "workloads"):
            for key in ("dataset", "validation"):
                if isinstance(item, dict) and isinstance(item.get(key), str) and is_folder(item[key]):
                    item[key] = _anchored(document, (*path, key), item[key], folder)
            if isinstance(item, dict) and item.get("module") is not None:
                _anchor_module(document, path, item, folder)
    for path, item in environments_of(document):
        if item.get("container") is not None:  # the interpreter's path is one in the container
            words = words_of(item["container"])
            item["container"] = [
                _anchored(document, (*path, "container"), word, folder) if _is_path(word, index) else word
                for index, word in enumerate(words)
            ]
        elif isinstance(item.get("python"), str) and is_folder(item["python"]):
            item["python"] = _anchored(document, (*path, "python"), item["python"], folder)


def _anchor_module(document: Document, path: tuple[str | int, ...], item: dict[str, Any], folder: Path) -> None:
    """Make the folder of a user's module a part of its name; raises StudyError where its files cannot be used."""
    inside, _, name = item["module"].rpartition("/")
    place = (*path, "module")
    anchored = _anchored(document, place, inside or ".", folder)
    try:
        find_own_module(Path(anchored), name, item["data"], item.get("loss"))
    except WorkloadError as error:
        raise StudyError(document.sentences([Mistake(place, str(error))])) from error
    item["module"] = f"{anchored}/{name}"


def _is_path(word: str, index: int) -> bool:
    """Whether a word of a command is a path for certain; an image's name holds slashes as well."""
    return word.startswith(("./", "../", "~/")) or (index == 0 and is_folder(word))


def _anchored(document: Document, path: tuple[str | int, ...], written: str, folder: Path) -> str:
    base = Path.cwd() if isinstance(document.location(path), str) else folder
    anchored = (base / Path(written).expanduser()).absolute()
    if mistake := path_mistake(anchored):
        raise StudyError(document.sentences([Mistake(path, f"the path {mistake}; rename the folder")]))
    return str(anchored)
