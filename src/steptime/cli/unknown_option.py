"""What an option that a verb lacks may mean: another of its options, or a change that is written without dashes."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from steptime.synonyms import question

_MEANT: Mapping[str, str] = {
    "--counts": "workers worker ranks nproc np",
    "--workers": "counts ranks nproc np",
    "--output-dir": "out output results folder dir",
    "--html": "page web",
    "--to": "format",
    "--verify": "check try",
}
"""Options by words for them that are spelled otherwise."""


def meant_by(option: str, options: Sequence[str], arguments: Sequence[str]) -> str:
    """Return what an unknown option may mean: a question or a sentence; empty if it is like nothing that is there.

    Args:
        option: as it was written, with its dashes and without a value.
        options: of the verb that was called.
        arguments: of the program, verb first.
    """
    if change := _as_change(option, arguments):
        return f"a change is written without dashes: {change}"
    word = _words(option)
    named = [name for name, words in _MEANT.items() if word in words.split() and name in options]
    initial = option[1] if len(option) == len("-w") else "-"
    short = [name for name in options if name.startswith(f"--{initial}")]
    if short and not named:
        return question(short)
    nearest = named[:1] or get_close_matches(option, [each for each in options if each.startswith("--")], n=1)
    if nearest:
        return question(nearest)
    near_keys = get_close_matches(word, _keys(arguments), n=1, cutoff=_ALIKE)
    return f"did you mean the change {near_keys[0]}=VALUE, without dashes?" if near_keys else ""


def _words(text: str) -> str:
    return text.lstrip("-").replace("_", "-")


def _query_keys() -> Sequence[str]:
    from steptime.predict.query import KEYS  # noqa: PLC0415 - of this verb alone

    return KEYS


def _study_keys() -> Sequence[str]:
    from steptime.study.study import Study  # noqa: PLC0415 - of these verbs alone

    return [*Study.model_fields]


_CHANGED: Mapping[str, Callable[[], Sequence[str]]] = {
    "predict": _query_keys,
    "run": _study_keys,
    "submit": _study_keys,
}
"""The verbs that take changes, with the keys that can be changed."""
_ALIKE = 0.8
"""Of their letters, from which on an option may be a slip of a key."""


def _keys(arguments: Sequence[str]) -> Sequence[str]:
    keys = _CHANGED.get(arguments[0]) if arguments else None
    return keys() if keys else ()


def _as_change(option: str, arguments: Sequence[str]) -> str:
    """Return an unknown option as the change ``KEY=VALUE`` that it may mean; empty if it means none."""
    key = _changed_key(_words(option), _keys(arguments))
    if key is None:
        return ""
    following = [*arguments, "", ""]
    places = [index for index, each in enumerate(arguments) if each.partition("=")[0] == option]
    given = [arguments[index].partition("=")[2] or following[index + 1] for index in places]
    value = next((each for each in given if each and not each.startswith("-")), "VALUE")
    return f"{key}={value}"


def _changed_key(name: str, keys: Sequence[str]) -> str | None:
    """Return the key of a name, that of its last word alone if there is one, or a key below one of ``keys``."""
    same = [key for key in keys if _words(key) == name] or [key for key in keys if _words(key).endswith(f".{name}")]
    if len(same) == 1:
        return same[0]
    head, dot, rest = name.partition(".")
    above = [key for key in keys if _words(key) == head and rest]
    return f"{above[0]}{dot}{rest.replace('-', '_')}" if above else None
