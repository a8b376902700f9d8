"""The libraries of NVIDIA's wheels, loaded for packages that look for CUDA on the machine only.

CuPy 12 and MXNet were linked with CUDA's libraries and do not know that these may lie in wheels of the same
environment. A library that is loaded already is found by its name, wherever it lies. The driver's own,
``libcuda.so.1``, is the machine's.
"""

import ctypes
import glob
import os
import sysconfig
from typing import List


def load_libraries() -> List[str]:
    """Load every library of the wheels ``nvidia-*``; to be called before the framework is imported.

    Returns the names of those that could not be loaded.
    """
    packages = sysconfig.get_paths()["purelib"]
    waiting = sorted(glob.glob(os.path.join(packages, "nvidia", "*", "lib", "lib*.so*")))
    while True:
        failed = [path for path in waiting if not _load(path)]
        if not failed or len(failed) == len(waiting):  # some need others that come later
            return [os.path.basename(path) for path in failed]
        waiting = failed


def _load(path: str) -> bool:
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True
