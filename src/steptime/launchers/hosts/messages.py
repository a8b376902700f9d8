"""The messages of a host agent, as lines of bytes of which none is longer than Slurm leaves whole.

srun writes what all hosts say into one stream. It takes whole lines from each of them, but none of more than 1024
bytes: a longer one is cut, and words of another host may come between its parts. A long message is therefore sent in
numbered pieces, a line each, which the reader joins host by host. Host agents import this file, so that it needs the
standard library only.
"""

import json
from typing import Any

Message = dict[str, Any]

LONGEST_LINE_BYTES = 900
"""With the end of the line; Slurm's own limit is 1024."""
_CHARACTERS = 400
"""Of a message in one piece: all are ASCII, and a quote takes two bytes once more in the line of the piece."""
_MARK = b'"host": '
"""Every line of a host agent has it."""


class ForeignLineError(ValueError):
    """A line that no host agent has written, such as the greeting of a login shell."""


class DamagedMessageError(ValueError):
    """A line of a host agent that did not arrive as it was sent, or of whose message a piece is missing."""


def lines_of(message: Message, number: int) -> list[bytes]:
    """Return the lines of a message of a host agent, each with its end.

    Args:
        message: it has ``host``, the index of the host that sends it.
        number: how many messages the same host has said before.
    """
    whole = json.dumps(message)
    if len(whole) < LONGEST_LINE_BYTES:
        return [whole.encode() + b"\n"]
    texts = [whole[begin : begin + _CHARACTERS] for begin in range(0, len(whole), _CHARACTERS)]
    of_all = {"host": message["host"], "message": number, "pieces": len(texts)}
    return [json.dumps({**of_all, "piece": piece, "text": text}).encode() + b"\n" for piece, text in enumerate(texts)]


class Joiner:
    """Joins the lines of one stream to the messages of the hosts that speak in it."""

    def __init__(self, hosts: int) -> None:
        """Begin.

        Args:
            hosts: how many hosts there are; a line that names another is damaged.
        """
        self._hosts = hosts
        self._pieces: dict[int | None, list[Message]] = {}

    def joined(self, line: bytes) -> tuple[int | None, Message | None]:
        """Return the sender of a line, and the message that it is or completes; None while pieces are still to come.

        The host is None if a host agent does not know yet which one it is on.

        Raises ForeignLineError and DamagedMessageError.
        """
        try:
            said = json.loads(line)
        except ValueError:
            raise _error_of(line) from None
        if not isinstance(said, dict) or "host" not in said:
            raise _error_of(line)
        host = said["host"]
        if host is not None and host not in range(self._hosts):
            message = f"no host {host!r}"
            raise DamagedMessageError(message)
        return host, self._completed(host, said) if "piece" in said else said

    def _completed(self, host: int | None, piece: Message) -> Message | None:
        before = self._pieces.setdefault(host, [])
        if piece["piece"] != len(before) or (before and piece["message"] != before[0]["message"]):
            self._pieces[host] = []
            message = (
                f"piece {piece['piece'] + 1} of {piece['pieces']} of message {piece['message']} came after "
                f"{len(before)} pieces"
            )
            raise DamagedMessageError(message)
        before.append(piece)
        if len(before) < piece["pieces"]:
            return None
        del self._pieces[host]
        found: Message = json.loads("".join(each["text"] for each in before))
        return found


def _error_of(line: bytes) -> ValueError:
    return DamagedMessageError("a line is not JSON") if _MARK in line else ForeignLineError("no host agent wrote it")
