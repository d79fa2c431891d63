"""Stands in for a Python: has a server fork the process that is asked for, or becomes the real Python."""

import json
import os
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(address: str, python: str, *arguments: str) -> None:
    """Start Python with these arguments, and end as it ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address)
        start = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(connection, [json.dumps(start).encode()], [0, 1, 2])
        is_served = connection.recv(1) == b"+"
    except OSError:
        is_served = False
    if is_served:
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: connection.send(bytes([number])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    if not is_served:
        os.execv(python, [python, *arguments])
    code = int(connection.recv(16))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
