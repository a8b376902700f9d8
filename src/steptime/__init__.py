"""Race distributed-training frameworks, see where each step's time goes, know how it will scale.

The public interface is here: ``read_results``, ``fit``, ``read_profile``, ``write_profile`` and ``predict``.
"""

TYPE_CHECKING = False  # typing and what it imports would take half of the time in which no Ctrl-C is expected
if TYPE_CHECKING:
    from steptime.api import Profile, Results, fit, predict, read_profile, read_results, write_profile

__version__ = "0.1.0"
__all__ = [
    "Profile",
    "Results",
    "__version__",
    "fit",
    "predict",
    "read_profile",
    "read_results",
    "write_profile",
]


def __getattr__(name: str) -> object:
    """Import the public names when one of them is used: the program's ``--help`` must not wait for numpy."""
    if name in __all__:
        from steptime import api  # noqa: PLC0415 - as above

        # Importing the package steptime.predict has put it where the function belongs.
        globals().update({each: getattr(api, each) for each in api.__all__})
        return globals()[name]
    message = f"module 'steptime' has no attribute {name!r}"
    raise AttributeError(message)
