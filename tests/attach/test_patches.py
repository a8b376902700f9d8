"""A replaced function calls the original once, whatever our half does."""

import logging
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from steptime.attach import patches


class Library:
    """What is patched."""

    def __init__(self):
        self.calls = []

    def call(self, value):
        self.calls.append(value)
        if value == "fails":
            raise KeyError(value)
        return f"result of {value}"


class Derived(Library):
    """What inherits it."""


@pytest.fixture
def reported(monkeypatch):
    found = []
    monkeypatch.setattr(patches, "reports", [lambda hook, error: found.append((hook, repr(error)))])
    return found


def failing(*_):
    raise ValueError


@pytest.fixture
def library():
    class Fresh(Library):
        call = Library.call

    return Fresh


def test_a_fault_before_the_call_leaves_the_call_as_it_was(library, reported):
    original = library.call
    patches.measure(library, "call", failing, lambda *_: None)
    made = library()
    assert [made.call("a"), made.call("b")] == ["result of a", "result of b"]
    assert made.calls == ["a", "b"]
    assert reported == [("Fresh.call", "ValueError()")]
    assert library.call is original


def test_a_fault_after_the_call_leaves_its_result(library, reported):
    patches.measure(library, "call", lambda *_: True, failing)
    made = library()
    assert made.call("a") == "result of a"
    assert made.calls == ["a"]
    assert len(reported) == 1


def test_a_fault_after_a_call_that_failed_leaves_the_users_error(library, reported):
    patches.measure(library, "call", lambda *_: True, failing)
    with pytest.raises(KeyError, match="fails"):
        library().call("fails")
    assert len(reported) == 1


def test_a_call_that_failed_is_told_apart_from_one_that_returned(library, reported):
    seen = []
    patches.measure(library, "call", lambda args, _: args[1], lambda mark, returned: seen.append((mark, returned)))
    made = library()
    made.call("a")
    with pytest.raises(KeyError):
        made.call("fails")
    assert seen == [("a", True), ("fails", False)]


def test_a_patch_below_another_is_switched_off_and_left_there(library, reported):
    patches.measure(library, "call", failing, lambda *_: None)
    ours = library.call
    library.call = lambda self, value: ours(self, value) + "!"
    assert library().call("a") == "result of a!"
    assert library().call("a") == "result of a!"
    assert len(reported) == 1


def test_an_inherited_method_is_inherited_again_after_a_fault(reported):
    patches.measure(Derived, "call", failing, lambda *_: None)
    assert Derived().call("a") == "result of a"
    assert "call" not in vars(Derived)


def test_a_report_that_fails_is_not_noticed_either(library, monkeypatch):
    monkeypatch.setattr(patches, "reports", [failing])
    patches.measure(library, "call", failing, lambda *_: None)
    assert library().call("a") == "result of a"


def test_an_error_of_the_users_signal_handler_is_the_users_also_in_our_code(library, reported):
    def handler(number, frame):
        raise TimeoutError

    def before(args, kwargs):
        os.kill(os.getpid(), signal.SIGUSR1)
        return True

    patches.measure(library, "call", before, lambda *_: None)
    old = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError):
            library().call("a")
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert reported == []


def test_an_interrupt_in_our_code_ends_the_call_as_one_before_it(library, reported):
    def before(args, kwargs):
        raise KeyboardInterrupt

    patches.measure(library, "call", before, lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        library().call("a")


def test_the_replacement_passes_for_the_original(library, reported):
    original = library.call
    patches.measure(library, "call", lambda *_: None, lambda *_: None)
    assert library.call.__name__ == original.__name__
    assert library.call.__qualname__ == original.__qualname__
    assert library.call.__wrapped__ is original


def test_our_frames_are_not_in_a_printed_traceback(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "attached = len(sys.argv) > 1\n"
        "class Library:\n"
        "    def call(self):\n"
        "        try:\n"
        "            {}['inner']\n"
        "        except KeyError as error:\n"
        "            raise ValueError('outer') from error\n"
        "if attached:\n"
        "    sys.argv.pop()\n"
        "    from steptime.attach import patches\n"
        "    patches.clean_tracebacks()\n"
        "    patches.measure(Library, 'call', lambda *_: True, lambda *_: None)\n"
        "Library().call()\n"
    )
    ends = [
        subprocess.run([sys.executable, script, *more], capture_output=True, text=True, check=False)
        for more in ([], ["attached"])
    ]
    assert ends[0].stderr == ends[1].stderr
    assert ends[0].returncode == ends[1].returncode == 1


def test_a_call_from_many_threads_is_made_once_each(library, reported):
    patches.measure(library, "call", failing, lambda *_: None)
    made = library()
    threads = [threading.Thread(target=made.call, args=(str(number),)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made.calls, key=int) == [str(number) for number in range(50)]


def warn(_self=None):
    warnings.warn("as of the caller's caller", stacklevel=2)
    logging.getLogger("planted").warning("likewise", stacklevel=2)


@pytest.mark.parametrize("way", ["function", "method"])
def test_a_warning_of_a_library_names_the_users_line_and_not_ours(way, caplog):
    class Library:
        call = warn

    patches.measure(Library, "call", lambda _, __: True, lambda _, __: None)
    library = Library()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if way == "method":
            library.call()
        else:
            Library.call(library)
    assert [warning.filename for warning in caught] == [__file__]
    assert [record.pathname for record in caplog.records] == [__file__]


def test_a_function_that_warnings_pass_over_is_ours_still():
    assert all(patches.is_ours(code) for code in patches.code_objects(patches))
    assert any("_bootstrap" in code.co_filename for code in patches.code_objects(patches))
