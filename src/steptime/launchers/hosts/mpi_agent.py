"""``python mpi_agent.py SOCKET [OPTION …] HOST COMMAND …``: what an mpiexec calls instead of ssh.

It asks the host agent of this host to have COMMAND run on HOST, and ends with the exit code of the command.
"""

import json
import socket
import sys


def main(path: str, arguments: list[str]) -> int:
    """Ask, wait, and return the exit code."""
    while arguments[0].startswith("-"):
        arguments = arguments[1:]
    host, *command = arguments
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(json.dumps({"host": host, "command": " ".join(command)}).encode() + b"\n")
        answer = connection.recv(16)
    return int(answer) if answer.strip() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]) & 0xFF)
