"""The page that ``steptime serve`` shows: at one address, to this machine, and whatever is in the folder."""

import http.client
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from program import PROGRAM
from simulated import a_launch, a_store, a_trial

from steptime.cli.page_server import HOST, PageServer

sys.path.insert(0, str(Path(__file__).parents[1] / "attached"))
from stored_processes import COMMAND, ddp_steps, process_lines, write

HOSTILE = "<script>alert(1)</script>\x1b]0;t\x07"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    store = a_store(tmp_path_factory.mktemp("results") / "r", name=HOSTILE)
    trial = a_trial()
    store.add_trial(trial)
    for number in range(3):
        store.append(a_launch(trial, number, times=[0.1, 0.11, 0.1]))
    served = PageServer(store.path)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


def answer(server, path=None, method="GET", host=None):
    """Return the status, the headers and the text of an answer."""
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=60)
    try:
        headers = {} if host is None else {"Host": host}
        connection.request(method, f"/{server.token}/" if path is None else path, headers=headers)
        found = connection.getresponse()
        return found.status, found.headers, found.read().decode()
    finally:
        connection.close()


def test_the_page_is_at_the_address_with_the_token(server):
    status, _, page = answer(server)

    assert status == 200
    assert "reference single" in page


@pytest.mark.parametrize("path", ["/", "/index.html", "/" + "x" * 32 + "/", "/../../etc/passwd", "//", "/%00"])
def test_nothing_is_at_any_other_address(server, path):
    assert answer(server, path)[0] == 404


def test_a_name_of_another_site_that_leads_here_is_refused(server):
    assert answer(server, host="somewhere.example")[0] == 404


@pytest.mark.parametrize("sent", [b"", b"GET / HT", "whole"], ids=["nothing", "half a request", "a request"])
def test_a_client_that_resets_its_connection_leaves_no_traceback(server, capfd, sent):
    whole = f"GET /{server.token}/ HTTP/1.1\r\nHost: {HOST}:{server.server_port}\r\n\r\n".encode()
    for _ in range(5):
        with socket.create_connection((HOST, server.server_port)) as client:
            client.sendall(whole if sent == "whole" else sent)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert answer(server)[0] == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(server, method):
    assert answer(server, method=method)[0] in {404, 501}


def test_text_of_others_is_text_and_no_script_may_run(server):
    _, headers, page = answer(server)

    assert "<script" not in page
    assert "\x1b" not in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_server_hears_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_two_servers_have_different_tokens(server):
    other = PageServer(Path("unused"))
    other.server_close()

    assert other.token != server.token


def test_a_folder_that_is_removed_meanwhile_is_said_in_a_sentence(tmp_path):
    served = PageServer(tmp_path / "gone")
    served.server_close()

    assert b"gone" in served.page()


@pytest.mark.parametrize("ended", [{}, {"exit_code": 0}])
def test_the_page_of_an_attached_run_is_asked_for_again_until_an_end_is_recorded(tmp_path, ended):
    store = a_store(tmp_path / "r")
    write(store.path, process_lines(0, 1, ddp_steps(0, lambda _: [0.0], steps=30)))
    begun = {"command": ["train.py"], "started_at": "2026-11-27T00:00:00+00:00", "boot": "boot-0", "begin_ns": COMMAND}
    store.put("attached", begun | {"wall_minus_monotonic_ns": 0} | ended)
    served = PageServer(store.path)
    served.server_close()
    page = served.page().decode()

    assert "backward" in page
    assert ("latest: step 29, 40 ms." in page) is not bool(ended)
    assert ('http-equiv="refresh"' in page) is not bool(ended)


def test_the_address_comes_through_a_pipe_while_the_page_is_served(tmp_path):
    folder = a_store(tmp_path / "r").path
    with subprocess.Popen([*PROGRAM, "serve", str(folder)], stdout=subprocess.PIPE, text=True) as served:
        try:
            assert f"http://{HOST}:" in served.stdout.readline()
        finally:
            served.terminate()
