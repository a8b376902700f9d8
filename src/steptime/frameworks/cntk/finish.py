"""Give CNTK the MPI that lies in its environment: ``python finish.py ENVIRONMENT``.

CNTK 2.7 was linked with Open MPI 1.10, which no package index has. Two small libraries with the names that it asks for
lead to the Open MPI 4.1 of the same environment. A link to the file would not do: the library finds its own parts
beside the path under which it was loaded.
"""

import ctypes
import glob
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

_COMPILERS = ("cc", "gcc", "clang")
_FIX = "fix: sudo apt-get install gcc libc6-dev"
_FIX_PYTHON = "fix: env PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force 3.6"
_EMPTY = "static int unused; int *steptime_mpi(void) { return &unused; }\n"
# What CNTK's C++ bindings name and never call: an old interface of MPI that Open MPI 4 no longer has.
_CPP = """
#include <stdio.h>
#include <stdlib.h>
static void end(const char *name) { fprintf(stderr, "CNTK called %s, which Open MPI 4 lacks\\n", name); abort(); }
void ompi_mpi_cxx_op_intercept(void) { end("ompi_mpi_cxx_op_intercept"); }
void _ZN3MPI4CommC2Ev(void) { end("MPI::Comm::Comm"); }
void _ZN3MPI3Win4FreeEv(void) { end("MPI::Win::Free"); }
void _ZN3MPI8Datatype4FreeEv(void) { end("MPI::Datatype::Free"); }
"""


def main(environment):
    """Complete CNTK's folder in ``environment``: both libraries of MPI, and Python's own if nothing else finds it."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        sys.exit("CNTK needs a C compiler to reach MPI, and there is none on PATH\n" + _FIX)
    (folder,) = glob.glob(os.path.join(environment, "lib", "python3.*", "site-packages", "cntk", "libs"))
    mpi = os.path.join(environment, "lib", "libmpi.so.40")
    # Where a library lies relative to CNTK's holds wherever the environment is moved to.
    search = "-Wl,-rpath,$ORIGIN/" + os.path.relpath(os.path.dirname(mpi), folder)
    link = ["-Wl,--no-as-needed", search, mpi, "-Wl,--allow-shlib-undefined"]
    _compile(compiler, _EMPTY, os.path.join(folder, "libmpi.so.12"), link)
    _compile(compiler, _CPP, os.path.join(folder, "libmpi_cxx.so.1"), [])
    _lead_to_python(folder)


def _compile(compiler, source, target, link):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shim.c")
        with open(path, "w") as file:
            file.write(source)
        soname = "-Wl,-soname," + os.path.basename(target)
        code = subprocess.call([compiler, "-shared", "-fPIC", "-O1", "-o", target, path, soname] + link)
    if code:
        sys.exit("%s could not make %s; a complete C compiler would\n%s" % (compiler, target, _FIX))


def _lead_to_python(folder):
    """CNTK asks for Python as a library, which not every Python was built as and not every loader finds."""
    name = "libpython%d.%d%s.so.1.0" % (sys.version_info[0], sys.version_info[1], sys.abiflags)
    try:
        ctypes.CDLL(name)
    except OSError:
        path = os.path.join(sysconfig.get_config_var("LIBDIR") or "", name)
        if not os.path.exists(path):
            sys.exit("CNTK needs a Python that was built as a shared library; missing: %s\n%s" % (path, _FIX_PYTHON))
        os.symlink(path, os.path.join(folder, name))


if __name__ == "__main__":
    main(sys.argv[1])
