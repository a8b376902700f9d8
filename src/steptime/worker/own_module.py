"""A user's own module: its files and their import, which happens in processes of a launch alone.

``Own`` is the ``own`` of a job's workload: ``folder`` from which the files are imported, ``build``, ``data`` and
``loss`` as ``PACKAGE.MODULE:FUNCTION``, and the ``files`` that are imported from the folder with their SHA-256.
"""

import hashlib
import importlib
import os
import sys
from typing import Any, Callable, Dict

Own = Dict[str, Any]


def load_function(own: Own, key: str, framework: str) -> Callable[..., Any]:
    """Import and return the function that ``own[key]`` names.

    Raises ValueError where the files are not those that were planned, another module of that name is imported, a
    package is missing, or what is named cannot be called.
    """
    module_name, _, function_name = own[key].partition(":")
    for name, digest in own["files"]:
        path = os.path.join(own["folder"], name)
        with open(path, "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                raise ValueError(
                    "%s has changed since the run was planned; run it again, which makes trials of their own of it"
                    % path
                )
    if own["folder"] not in sys.path:
        sys.path.insert(1, own["folder"])  # behind the run folder, ahead of packages, as Python does for a script
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        missing = getattr(error, "name", None) or ""
        if not missing or missing.split(".")[0] == module_name.split(".")[0]:
            raise ValueError("%s cannot be imported from %s: %s" % (module_name, own["folder"], error)) from error
        raise ValueError(
            "%s imports %s, which this environment lacks; name an interpreter of yours that has it: "
            "environments: {%s: {kind: existing, python: /path/to/python}}" % (module_name, missing, framework)
        ) from error
    _require_own_file(module, own)
    found = getattr(module, function_name, None)
    if not callable(found):
        raise ValueError("%s cannot be called; name a function" % own[key])
    return found  # type: ignore[no-any-return]


def _require_own_file(module: Any, own: Own) -> None:
    path = os.path.realpath(getattr(module, "__file__", None) or "")
    known = {os.path.realpath(os.path.join(own["folder"], name)) for name, _ in own["files"]}
    if path not in known:
        raise ValueError(
            "the name %s means %s in this environment, not a file of %s; rename your module"
            % (module.__name__, path or "a module without a file", own["folder"])
        )
