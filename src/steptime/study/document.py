"""A study file as plain values, each with its line; the only module that knows ruamel.

The tree of nodes is read, not the objects that a loader would make of it: so nothing in a file can make an object,
every value keeps its line, and repeated keys are seen.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML, MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from steptime.errors import StudyError

Path = tuple[str | int, ...]
"""Keys and list indices from the top of the file to a value."""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong, and the value that it is about."""

    path: Path
    text: str


@dataclass
class Document:
    """Plain values of a study file, with overrides applied."""

    name: str
    """The file, as it is named in messages."""
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, int | str] = field(default_factory=dict)
    """Where values were written: a line of the file, counted from 1, or an override as it was typed."""
    mistakes: list[Mistake] = field(default_factory=list)
    """Mistakes found while reading; what they are about is judged no further."""

    def at(self, path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
        """Return the value at ``path``, or None if there is none."""
        value: Any = self.data
        for key in path:
            inside = isinstance(value, list) and isinstance(key, int) and key < len(value)
            if not inside and not (isinstance(value, Mapping) and key in value):
                return None
            value = value[key]
        return value

    def each(self, *path: str | int) -> Iterator[tuple[Path, Any]]:
        """Yield the items of the list at ``path``, or the single value that stands for a list of one."""
        value = self.at(path)
        if isinstance(value, list):
            yield from (((*path, index), item) for index, item in enumerate(value))
        elif value is not None:
            yield path, value

    def items(self, *path: str | int) -> Iterator[tuple[str, Any]]:
        """Yield the keys and values of the mapping at ``path``; nothing where there is no mapping."""
        value = self.at(path)
        if isinstance(value, dict):
            yield from value.items()

    def location(self, path: Path) -> int | str | None:
        """Return where ``path``, or the nearest value around it, was written."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return None

    def sentences(self, mistakes: list[Mistake]) -> list[str]:
        """Return ``mistakes`` as sentences with their places, in the order of the file, one for each value."""
        first: dict[Path, Mistake] = {}
        for mistake in mistakes:
            path = self._as_written(mistake.path)
            first.setdefault(path, Mistake(path, mistake.text))
        return [self._sentence(mistake) for mistake in sorted(first.values(), key=self._order)]

    def _as_written(self, path: Path) -> Path:
        """The path without the indices of lists of one that were written without a list."""
        written: Path = ()
        for key in path:
            if not isinstance(key, int) or isinstance(self.at(written), list):
                written = (*written, key)
        return written

    def _order(self, mistake: Mistake) -> tuple[int, int, str]:
        location = self.location(mistake.path)
        if isinstance(location, int):
            return (1, location, _dotted(mistake.path))
        return (0 if location is None else 2, 0, _dotted(mistake.path))

    def _sentence(self, mistake: Mistake) -> str:
        location = self.location(mistake.path)
        where = (
            f"{self.name}:{location}"
            if isinstance(location, int)
            else f"override {location!r}"
            if location
            else self.name
        )
        key = _dotted(mistake.path[:-1] if self._quoted(mistake) else mistake.path)
        return f"{where}: {key}: {mistake.text}" if key else f"{where}: {mistake.text}"

    def _quoted(self, mistake: Mistake) -> bool:
        """Whether the mistake is about an item of a list that its text quotes, so that the index is not needed."""
        value = self.at(mistake.path)
        is_item = bool(mistake.path) and isinstance(mistake.path[-1], int)
        return is_item and not isinstance(value, dict) and repr(value) in mistake.text


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


_TAG = "tag:yaml.org,2002:"
_PLAIN = {_TAG + kind for kind in ("null", "bool", "int", "float", "str", "map", "seq", "timestamp")}
_MOST_VALUES = 20_000
"""Aliases can make a short file mean a huge one."""
_MOST_LEVELS = 20
_MOST_BITS = 256
"""Of a whole number; Python refuses to print much longer ones."""
_MOST_BRACKETS = 200
"""The parser needs seconds for a file that opens ten thousand."""


def read_yaml(text: str, name: str) -> Document:
    """Read the text of a study file.

    Args:
        text: the file's content.
        name: the file, as it is named in messages.

    Raises StudyError where the text is not YAML, or is not a mapping.
    """
    root = _compose(text, name)
    if root is None:
        message = f"{name}: the file is empty; a study needs at least workloads and frameworks"
        raise StudyError(message)
    if not isinstance(root, MappingNode):
        message = (
            f"{name}:{_line(root)}: the file holds a list or a value; a study is a mapping of keys such as workloads"
        )
        raise StudyError(message)
    document = Document(name)
    document.data = _Walk(document).value(root, ())
    return document


def read_value(text: str, name: str) -> tuple[Any, list[Mistake]]:
    """Read one value, behind the equals sign of an override, and the mistakes in it.

    Raises StudyError where the text is not YAML.
    """
    root = _compose(text, name, with_lines=False)
    if root is None:
        return None, [Mistake((), _EMPTY)]
    document = Document(name)
    return _Walk(document).value(root, ()), document.mistakes


_EMPTY = "is empty; give it a value, or remove it"


def _compose(text: str, name: str, *, with_lines: bool = True) -> Node | None:
    if _brackets(text) > _MOST_BRACKETS:
        raise StudyError(_too_deep(name))
    try:
        root: Node | None = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and error.context in _BEGUN:
            mark = error.context_mark
        where = f"{name}:{mark.line + 1}" if mark and with_lines else name
        space = _SPACE_OF_SYNTAX.search(text)
        if space:
            where = f"{name}:{text.count(chr(10), 0, space.start(1)) + 1}" if with_lines else name
        message = f"{where}: not valid YAML: {_no_plain_space(space[1]) if space else _words(error, text)}"
        raise StudyError(message) from error
    except ReaderError as error:
        where = f"{name}:{text.count(chr(10), 0, error.position) + 1}" if with_lines else name
        message = f"{where}: not valid YAML: it holds the unprintable character {text[error.position]!r}"
        raise StudyError(message) from error
    except (YAMLError, ValueError) as error:
        message = f"{name}: not valid YAML: {' '.join(str(error).split())}"
        raise StudyError(message) from error
    except RecursionError:
        raise StudyError(_too_deep(name)) from None
    return root


def _too_deep(where: str) -> str:
    return f"{where}: values are nested too deeply; a study needs five levels at most"


def _brackets(text: str) -> int:
    """Return about how many brackets are open at the deepest place; those inside of texts count too."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}" and depth:
            depth -= 1
    return deepest


_SPACE_OF_SYNTAX = re.compile(r"(?m)^[ -]*(?:[\w.]+:[ ]*)?([^\S \t\r\n])")
"""A space other than YAML's own where one belongs: in the indentation, or behind a dash or a key."""


def _no_plain_space(character: str) -> str:
    called = unicodedata.name(character, "a control character").lower()
    return f"{called} ({character!r}) where YAML needs a plain one; retype it"


_BEGUN = {
    "while scanning a simple key": "a key without its colon; write 'key: value', with a space after the colon",
    "while scanning a quoted scalar": "the quote that begins here does not end",
}
"""Of mistakes that YAML finds behind the line that has them, by its words."""


def _words(error: MarkedYAMLError, text: str) -> str:
    if error.context in _BEGUN:
        return _BEGUN[error.context]
    problem = str(error.problem or error).strip()
    if "'\\t'" in problem:
        return "a tab is where spaces are needed; indent with spaces"
    lines = text.splitlines()
    line = lines[error.problem_mark.line] if error.problem_mark and error.problem_mark.line < len(lines) else ""
    if problem == "mapping values are not allowed here" and line.count(":") == 1 and line[:1] == " ":
        return "it is indented further than the line above; keys of one mapping begin in one column"
    if problem == "mapping values are not allowed here":
        return "a second colon in one line; put a value that holds ': ' in quotes"
    if "another document" in problem:
        return "a second document ('---') begins; one file holds one study"
    return f"{error.context}: {problem}" if error.context else problem


def _line(node: Node) -> int:
    line: int = node.start_mark.line
    return line + 1


class _Walk:
    """Turns nodes into plain values and notes lines and mistakes in a document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._constructor = YAML(typ="safe", pure=True).constructor
        self._outer: list[Node] = []
        self._count = 0

    def value(self, node: Node, path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
        """Return the plain value of ``node``."""
        self._count += 1
        if self._count > _MOST_VALUES or any(node is outer for outer in self._outer):
            message = f"{self._document.name}:{_line(node)}: its aliases repeat more values than a study can have"
            raise StudyError(message)
        if len(self._outer) == _MOST_LEVELS:
            raise StudyError(_too_deep(f"{self._document.name}:{_line(node)}"))
        self._outer.append(node)
        result = self._plain(node, path)
        self._outer.pop()
        return result

    def _plain(self, node: Node, path: Path) -> Any:  # noqa: ANN401
        tag = str(node.tag)
        if tag not in _PLAIN:
            self._fault(path, f"the tag {tag.replace(_TAG, '!!')} is not allowed; a study holds plain values only")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._element(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _element(self, node: Node, path: Path) -> Any:  # noqa: ANN401
        self._document.places[path] = _line(node)
        return self.value(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            if not isinstance(key_node, ScalarNode):
                self._fault(path, f"line {_line(key_node)} has a list or mapping as a key; a key is a name")
                continue
            key = str(key_node.value)
            if space := next((each for each in key if each.isspace() and each not in " \t\n"), None):
                self._document.places[*path, repr(key)] = _line(key_node)
                self._fault((*path, repr(key)), _no_plain_space(space))
                continue
            if key in lines:
                self._fault((*path, key), f"is here and on line {lines[key]}; a key may occur once")
                self._document.places[*path, key] = _line(key_node)
                continue
            lines[key] = _line(key_node)
            self._document.places[*path, key] = lines[key]
            result[key] = self.value(value_node, (*path, key))
        return {**self._merged(node, path, set(lines)), **result}

    def _merged(self, node: MappingNode, path: Path, own: set[str]) -> dict[str, Any]:
        """Values that ``<<`` brings in from other mappings; a mapping's own keys win, then the mapping named first."""
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag != _TAG + "merge":
                continue
            for source in value_node.value if isinstance(value_node, SequenceNode) else [value_node]:
                if not isinstance(source, MappingNode):
                    self._fault((*path, "<<"), "merges something that is not a mapping")
                    continue
                rest = [(key, value) for key, value in source.value if key.value not in own | set(result)]
                part = MappingNode(source.tag, rest, source.start_mark, source.end_mark)
                result.update(self.value(part, path))
        return result

    def _scalar(self, node: Node, path: Path) -> Any:  # noqa: ANN401
        if node.tag == _TAG + "null" and not node.value:
            self._fault(path, _EMPTY)
            return None
        if node.tag == _TAG + "timestamp":
            return node.value
        try:
            value = self._constructor.construct_object(node)
            if not isinstance(value, int) or value.bit_length() <= _MOST_BITS:
                return value
            self._fault(path, f"{str(node.value)[:60]}… is too large a number")
            return None  # noqa: TRY300 - a mistake that was noted, not an error
        except (YAMLError, ValueError):
            self._fault(path, f"{str(node.value)[:60]!r} cannot be read as {str(node.tag).removeprefix(_TAG)}")
            return None

    def _fault(self, path: Path, text: str) -> None:
        self._document.mistakes.append(Mistake(path, text))
