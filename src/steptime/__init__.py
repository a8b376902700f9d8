"""Race distributed-training frameworks, see where each step's time goes, know how it will scale.

The public interface is here: ``attached``, ``read_results``, ``fit``, ``read_profile``, ``write_profile``, ``predict``.
"""

import sys

TYPE_CHECKING = False  # typing and what it imports would take half of the time in which no Ctrl-C is expected
if TYPE_CHECKING:
    from steptime.api import Profile, Results, fit, predict, read_profile, read_results, write_profile
    from steptime.attach.block import attached

__version__ = "0.1.0"
__all__ = [
    "Profile",
    "Results",
    "__version__",
    "attached",
    "fit",
    "predict",
    "read_profile",
    "read_results",
    "write_profile",
]


class _PublicModule(type(sys)):  # type: ignore[misc]  # the type of modules
    """This module, in which two names are functions, also once the packages of these names were imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in {"attached", "predict"} or not isinstance(value, type(sys)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _PublicModule


def __getattr__(name: str) -> object:
    """Import the public names when one of them is used: the program's ``--help`` must not wait for numpy."""
    if name == "attached":  # a training process should import nothing else
        from steptime.attach.block import attached  # noqa: PLC0415 - as above

        globals()[name] = attached
        return attached
    if name in __all__:
        from steptime import api  # noqa: PLC0415 - as above

        globals().update({each: getattr(api, each) for each in api.__all__})
        return globals()[name]
    message = f"module 'steptime' has no attribute {name!r}"
    raise AttributeError(message)
