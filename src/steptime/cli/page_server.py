"""``steptime serve``: the page of a results folder while a study runs."""

import hmac
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import typer

from steptime.cli.arguments import open_results
from steptime.cli.streams import say
from steptime.document.plain_text import plain_text
from steptime.errors import SteptimeError
from steptime.results.progress import run_progress, run_state

HOST = "127.0.0.1"
_TOKEN_BYTES = 24
_LEAST_S = 5
"""Between two readings of the folder, and until a browser asks again; a large folder is read less often."""
_POLL_S = 0.1
"""Within which a server ends."""
_SHARE = 5
"""A page takes at most one in so many seconds to be made."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A results folder, of a study that may still run.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
) -> None:
    """Show the report in a browser of this machine, live and read-only, until Ctrl-C."""
    open_results(folder)
    server = PageServer(folder, port)
    say(f"report of {folder}, on this machine only: {server.address}", "Ctrl-C ends it")
    sys.stdout.flush()  # a pipe or a file would get the address at the end
    try:
        server.serve_forever()
    finally:
        server.server_close()


@contextmanager
def page_served(folder: Path) -> Iterator[str]:
    """Serve the page of a folder from a thread that takes no signal; return its address. Raises OSError."""
    with PageServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # which the thread inherits
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            yield server.address
        finally:
            server.shutdown()
            thread.join()


class PageServer(ThreadingHTTPServer):
    """Serves one page at one address that cannot be guessed, to programs of this machine."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__((HOST, port), _PageRequest)
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._folder = folder
        self._made: tuple[float, float, bytes] = (0.0, 0.0, b"")
        self._lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as of the class above
        """Pass over a client that has gone; whatever else fails is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def page(self) -> bytes:
        """Return the page, made anew if it is old enough."""
        with self._lock:
            made_at, took_s, page = self._made
            begun = time.monotonic()
            if page and begun - made_at < max(_LEAST_S, _SHARE * took_s):
                return page
            page = _page(self._folder)
            self._made = (time.monotonic(), time.monotonic() - begun, page)
            return page


def _page(folder: Path) -> bytes:
    """Return the page of a folder as it is now."""
    from steptime.attached.latest_steps import latest_attempt, latest_steps  # noqa: PLC0415 - serve alone needs it
    from steptime.attached.memory import memory_now  # noqa: PLC0415 - serve alone needs it
    from steptime.cli.reported_results import read_report  # noqa: PLC0415 - serve alone needs it
    from steptime.report.page import page_of  # noqa: PLC0415 - serve alone needs it

    try:
        found = read_report(folder)
        run = run_progress(folder)
        running = run is not None and run_state(folder, run) == "running"
        notice = f"Running: {run.stage}, {run.done} done, now {run.item or run.stage}." if run and running else ""
        if found.attached is not None and found.attached.exit_code is None:
            running = True
            latest = latest_attempt(folder)
            memory = memory_now(latest) if latest else None
            notice = f"No end is recorded yet; latest: {latest_steps(latest) or 'no step'}."
            notice += f" Memory now: {memory}." if memory else ""
        page = page_of(found.store, found.findings, notice=notice, refresh_s=_LEAST_S if running else None)
    except SteptimeError as error:
        from markupsafe import escape  # noqa: PLC0415 - serve alone needs it

        said = escape(plain_text(str(error)))
        page = (
            f'<!doctype html><html lang="en"><title>steptime</title><main><h1>steptime</h1><p>{said}</p></main></html>'
        )
    return page.encode()


class _PageRequest(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        """Answer the one address; a name that leads to this machine but is not its own is of another site."""
        named = self.headers.get("Host", "")
        own = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        asked = self.path.partition("?")[0].encode("latin-1", "replace")
        if named not in own or not hmac.compare_digest(asked, f"/{self.server.token}/".encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        page = self.server.page()
        self.send_response(HTTPStatus.OK)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if with_body:
            self.wfile.write(page)

    def version_string(self) -> str:
        """Say no more of the server than its name."""
        return "steptime"

    def log_message(self, *_: object) -> None:
        """Print nothing: addresses hold the token."""
