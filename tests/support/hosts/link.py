"""Connections between hosts: `python -m tests.support.hosts.link ROLE ARGUMENTS...`"""

import socket
import sys
import time
from collections.abc import Callable

PORT = 5000


def reach(host: str, port: str = str(PORT)) -> None:
    """Prints whether a connection could be made within a second, or why not."""
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        print("reached")
    except OSError as error:
        print(error)


def wait(host: str) -> None:
    """Prints that it is connected, and then what comes within a second."""
    with socket.create_connection((host, PORT)) as connection:
        print("connected", flush=True)
        sys.stdin.readline()
        connection.settimeout(1)
        try:
            print("said" if connection.recv(1) else "closed")
        except OSError as error:
            print(error)


def accept() -> None:
    """Accepts connections, and keeps them without a word."""
    kept = []
    with socket.create_server(("", PORT)) as server:
        while True:
            kept.append(server.accept())


def receive(connections: str) -> None:
    """Prints the bytes a second that come over several connections, until all are closed."""
    with socket.create_server(("", PORT)) as server:
        accepted = [server.accept()[0] for _ in range(int(connections))]
        began, total = time.monotonic(), 0
        for connection in accepted:
            connection.sendall(b"!")
        for connection in accepted:
            while piece := connection.recv(1 << 20):
                total += len(piece)
        print(total / (time.monotonic() - began))


def send(host: str, amount: str) -> None:
    """Sends bytes, once the other side wants them."""
    with socket.create_connection((host, PORT)) as connection:
        connection.recv(1)
        connection.sendall(bytes(int(amount)))


ROLES: dict[str, Callable[..., None]] = {
    "reach": reach,
    "wait": wait,
    "accept": accept,
    "receive": receive,
    "send": send,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
