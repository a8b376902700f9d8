"""Study files: found by a path or by the name of a shipped study, read, and checked for all mistakes at once.

Shipped studies lie in ``steptime/studies`` and in the packages that plug-ins name.

What replaces values of a study for one run: a scale that it has, and ``key.path=value`` on the command line.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import steptime
from steptime.catalog.plugins import OWN, plugins_of, taken_twice
from steptime.catalog.workloads.own_module import find_own_module
from steptime.errors import FileError, PluginError, StudyError, WorkloadError, choices_message
from steptime.file_name import MOST_CHARACTERS, as_file_name, file_name_mistake, path_mistake
from steptime.study.contradictions import contradictions
from steptime.study.document import Document, Mistake, read_value, read_yaml
from steptime.study.document import Path as KeyPath
from steptime.study.hosts import hostfile_of
from steptime.study.mistakes import KnownNames, environments_of, form_mistakes, is_folder, unknown_names
from steptime.study.quantities import words_of
from steptime.study.study import AXIS_NAMES, SMALL, Study
from steptime.synonyms import path_hint, where_path_ends
from steptime.user_file import read_user_text
from steptime.user_output import RUN_RECORD, STUDY, kind_of

_FIXED = ("version", "name", "scale", "scales")
_KEYS = tuple(key for key in Study.model_fields if key not in _FIXED)


def apply_scale(document: Document) -> None:
    """Replace the keys of ``document`` that its chosen scale names; ``null`` takes a key away."""
    chosen = document.data.get("scale")
    if not isinstance(chosen, str):
        return
    changes = _scales(document).get(chosen)
    if not isinstance(changes, dict):
        return
    for key, value in changes.items():
        if key not in _KEYS:
            continue
        document.data.pop(key, None)
        if value is not None:
            document.data[key] = value
        written: tuple[str | int, ...] = ("scales", chosen, key)
        moved = {
            (key, *path[len(written) :]): place
            for path, place in document.places.items()
            if path[: len(written)] == written
        }
        document.places = {path: place for path, place in document.places.items() if path[0] != key} | moved


def scale_mistakes(document: Document) -> Iterator[Mistake]:
    """Yield a scale that the study does not have, and keys of its scales that no scale can change."""
    scales = _scales(document)
    chosen = document.data.get("scale")
    if isinstance(chosen, str) and chosen not in (SMALL, *scales):
        yield Mistake(("scale",), choices_message("scale", chosen, [SMALL, *scales]))
    for name, changes in scales.items():
        if mistake := file_name_mistake(str(name), MOST_CHARACTERS):
            yield Mistake(("scales", name), mistake)
        if name == SMALL:
            yield Mistake(("scales", name), "is what the keys of the study itself say; name another scale")
        for key in changes if isinstance(changes, dict) else ():
            if key in _FIXED:
                yield Mistake(("scales", name, key), "is the same at every scale")
            elif key not in _KEYS:
                yield Mistake(("scales", name, key), choices_message("key", key, _KEYS))


def _scales(document: Document) -> dict[str, Any]:
    found = document.data.get("scales")
    return found if isinstance(found, dict) else {}


_NAMED = ("workloads", "loaders")
"""Lists whose items may be bare names."""


def apply_overrides(document: Document, overrides: Sequence[str]) -> list[str]:
    """Replace values of ``document``; where two overrides name one key, the later one counts.

    Returns a sentence for each override that cannot be applied. ``null`` takes a key away.
    """
    wrong: list[str] = []
    for override in overrides:
        try:
            _apply(document, override)
        except StudyError as error:
            wrong += error.mistakes
    return wrong


def _apply(document: Document, override: str) -> None:
    key, equals, text = override.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        message = f"override {override!r}: write KEY=VALUE, for example workers=[1,2] or equivalence.enabled=false"
        raise StudyError(message)
    name = f"override {override!r}"
    steps = _KeySteps(name)
    kept = document.data
    path = steps.resolve(kept, keys)
    value, mistakes = read_value(_listed(text, path), name)
    document.data = steps.replaced(kept, path, value, ())
    document.mistakes = [mistake for mistake in document.mistakes if mistake.path[: len(path)] != path]
    document.mistakes += [Mistake((*path, *mistake.path), mistake.text) for mistake in mistakes]
    document.places = {where: place for where, place in document.places.items() if where[: len(path)] != path}
    document.places[path] = override


def _listed(text: str, path: KeyPath) -> str:
    """``1,2,4`` means a list where a list is allowed."""
    takes_list = path[-1] in (*AXIS_NAMES, "processes") or "options" in path or "environment_variables" in path
    written = text.strip()
    return f"[{written}]" if takes_list and "," in written and written[0] not in "[{\"'" else written


class _KeySteps:
    """Goes down a path of keys; what the file wrote short (a name, one value) is spelled out on the way."""

    def __init__(self, name: str) -> None:
        self._name = name

    def resolve(self, data: Any, keys: Sequence[str]) -> KeyPath:  # noqa: ANN401 - whatever the file holds
        """Return the path that ``keys`` mean: items of lists by index from 0, or by name."""
        path: KeyPath = ()
        for key in keys:
            data = self._spelled_out(data, key, path)
            if isinstance(data, list):
                index = self._index(data, key, path)
                path, data = (*path, index), data[index]
            elif data is None or isinstance(data, dict):
                path, data = (*path, key), (data or {}).get(key)
            else:
                message = f"{self._name}: {_dotted(path)} is {data!r}, which has no {key!r} in it"
                raise StudyError(message)
        return path

    def replaced(self, data: Any, path: KeyPath, value: Any, above: KeyPath) -> Any:  # noqa: ANN401
        """Return ``data`` with ``value`` at ``path``; ``above`` is where ``data`` itself is."""
        if not path:
            return value
        first, rest = path[0], path[1:]
        data = self._spelled_out(data, str(first), above)
        if isinstance(data, list):
            return [
                self.replaced(item, rest, value, (*above, first)) if index == first else item
                for index, item in enumerate(data)
            ]
        kept = dict(data or {})
        below = self.replaced(kept.get(str(first)), rest, value, (*above, first))
        if below is None:
            kept.pop(str(first), None)
        else:
            kept[str(first)] = below
        return kept

    def _spelled_out(self, data: Any, key: str, path: KeyPath) -> Any:  # noqa: ANN401
        if path and path[-1] in _NAMED and data is not None and not isinstance(data, list):
            return [data]
        if isinstance(data, str) and len(path) > 1 and path[-2] in _NAMED:
            return {"name": data}
        if isinstance(data, bool) and path in {("breakdown",), ("loader_alone",)}:
            return {}  # what `true` stands for
        if path and key.isdecimal() and data is not None and not isinstance(data, list):
            return [data]
        return data

    def _index(self, items: list[Any], key: str, path: KeyPath) -> int:
        names = [item.get("name") if isinstance(item, dict) else item for item in items]
        if key.isdecimal() and int(key) < len(items):
            return int(key)
        if key in names:
            return names.index(key)
        known = ", ".join(f"{index} ({name})" for index, name in enumerate(names))
        message = f"{self._name}: {_dotted(path)} has no {key!r}; it has {known or 'nothing'}"
        raise StudyError(message)


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


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

    A scale that the study or an override chooses replaces keys of the file, and other overrides replace its own.

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
    _anchor_hostfile(document, paths_from or folder_of_paths(path_or_name))
    study, mistakes = _checked(document)
    mistakes = [*document.mistakes, *mistakes, *unknown_names(document, known)]
    mistakes += [*scale_mistakes(document), *contradictions(document, known)]
    if study is None or mistakes or wrong:
        mistakes += missing_folders(document, paths_from or folder_of_paths(path_or_name))
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
    meant = path_hint(path)
    if meant or path.suffix in {".yaml", ".yml"}:
        message = f"no file {path_or_name!r} is here{meant and f'; {meant}'} (shipped studies: steptime list studies)"
    else:
        message = f"{choices_message('study', path_or_name, shipped)}; a file of that name is not here either"
    raise StudyError(message)


def _text(path: Path) -> str:
    if (kind := kind_of(path)) not in (None, STUDY):
        study = path.with_name("study.yaml")
        beside = f"; its study is beside it: {study}" if kind is RUN_RECORD and study.is_file() else ""
        message = f"{path} is {kind.name}, not a study{beside}"
        raise StudyError(message)
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


def missing_folders(document: Document, folder: Path) -> Iterator[Mistake]:
    """Yield where a study names a folder of data that is not there; relative paths start at ``folder``.

    Of a study without other mistakes the scan of its folders finds more than that.
    """
    for path, item in _workloads(document):
        for key in _data_keys(item):
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # no path at all, which is another mistake
                place = (_base(document, (*path, key), folder) / Path(item[key]).expanduser()).absolute()
                if not place.exists():
                    yield Mistake((*path, key), f"no folder {place}; {where_path_ends(place)}")


def _workloads(document: Document) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    for top in ((), *(path for path, _ in document.each("include"))):
        yield from ((path, item) for path, item in document.each(*top, "workloads") if isinstance(item, dict))


def _data_keys(item: Mapping[str, Any]) -> list[str]:
    return [key for key in ("dataset", "validation") if isinstance(item.get(key), str) and is_folder(item[key])]


def _anchor_paths(document: Document, folder: Path) -> None:
    """Make relative paths absolute, so that the study means the same wherever it is resumed."""
    for path, item in _workloads(document):
        for key in _data_keys(item):
            item[key] = _anchored(document, (*path, key), item[key], folder)
        if item.get("module") is not None:
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


def _anchor_hostfile(document: Document, folder: Path) -> None:
    """Make the path of a hostfile absolute, before it is read."""
    hosts = document.data.get("hosts")
    if (written := hostfile_of(hosts)) is not None:
        place = ("hosts", "names") if isinstance(hosts, dict) else ("hosts",)
        names = _anchored(document, place, written, folder)
        document.data["hosts"] = {**hosts, "names": names} if isinstance(hosts, dict) else {"names": names}


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


def _base(document: Document, path: KeyPath, folder: Path) -> Path:
    """Return where a relative path starts: the current folder for one of an override."""
    return Path.cwd() if isinstance(document.location(path), str) else folder


def _anchored(document: Document, path: tuple[str | int, ...], written: str, folder: Path) -> str:
    anchored = (_base(document, path, folder) / Path(written).expanduser()).absolute()
    if mistake := path_mistake(anchored):
        raise StudyError(document.sentences([Mistake(path, f"the path {mistake}; rename the folder")]))
    return str(anchored)
