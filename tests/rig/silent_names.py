"""A name server that answers for one name and never for another, and processes that ask it."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

from harebell.dev.spawn import Process, StartProcess, start_process

ADDRESS: Final = ("127.53.0.1", 53)  # a file `resolv.conf` can name no other port
ANSWERED: Final = "known.example"
LOCAL: Final = socket.inet_aton("127.0.0.1")
HEADER: Final = 12  # bytes
IPV4: Final = b"\x00\x01"  # the type of a question
# Sees another `resolv.conf` than the other processes of the machine, and keeps its process id.
_IN_NAMESPACE: Final = (
    "unshare",
    "--mount",
    "--",
    "sh",
    "-ec",
    'mount --bind "$0" /etc/resolv.conf; exec "$@"',
)


@contextmanager
def silent_names(root: Path) -> Iterator[StartProcess]:
    """Yield a start of processes that ask the name server, which needs root."""
    configuration = root / "resolv.conf"
    configuration.write_text(f"nameserver {ADDRESS[0]}\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(ADDRESS)
        thread = Thread(target=_serve, args=(server,), daemon=True)
        thread.start()
        try:
            yield partial(_start, configuration)
        finally:
            server.sendto(b"", ADDRESS)
            thread.join()


def _start(configuration: Path, command: Sequence[str], **options: Any) -> Process:
    return start_process([*_IN_NAMESPACE, str(configuration), *command], **options)


def _serve(server: socket.socket) -> None:
    while True:
        query, sender = server.recvfrom(512)
        if not query:
            return
        if (answer := answer_to(query)) is not None:
            server.sendto(answer, sender)


def answer_to(query: bytes) -> bytes | None:
    """Return the response to a question about `ANSWERED`, or None for any other name."""
    name = b"".join(bytes([len(each)]) + each.encode() for each in ANSWERED.split(".")) + b"\0"
    if query[HEADER : HEADER + len(name)].lower() != name:
        return None
    question = query[HEADER : HEADER + len(name) + 4]
    is_ipv4 = question[len(name) : len(name) + 2] == IPV4
    counts = b"\x00\x01" + (IPV4 if is_ipv4 else b"\x00\x00") + b"\x00\x00\x00\x00"
    record = b"\xc0\x0c" + question[len(name) :] + b"\x00\x00\x00\x01\x00\x04" + LOCAL
    return query[:2] + b"\x81\x80" + counts + question + (record if is_ipv4 else b"")
