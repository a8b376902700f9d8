"""Run at the start of every Python that finds this folder on PYTHONPATH; then runs the one that it hides.

No function, annotation or f-string: a Python older than 3.8, which is left alone, must be able to read it.
"""

import os
import sys

if sys.version_info >= (3, 8) and os.environ.get("STEPTIME_ATTACH"):
    try:
        import importlib

        importlib.import_module("steptime_attach.imports").install("sitecustomize")
    except Exception as _error:
        import contextlib

        with contextlib.suppress(Exception):  # there may be no standard error, or no reader of it
            sys.stderr.write("steptime attach: not attached to process " + str(os.getpid()) + " " + repr(_error) + "\n")

try:
    import importlib.machinery
    import importlib.util

    _here = os.path.dirname(os.path.abspath(__file__))
    _spec = importlib.machinery.PathFinder.find_spec(
        "sitecustomize", [_path for _path in sys.path if os.path.abspath(_path or ".") != _here]
    )
except ImportError:  # Python 2
    _spec = None
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
