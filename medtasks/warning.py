"""Warnings that a process gives once: the harness asks every metric under every filter, each time about one thing."""

import threading

from loguru import logger

_given: set[str] = set()
_lock = threading.Lock()  # judges and the harness's scoring work in several threads


def warn_once(sentence: str) -> None:
    """Log a warning, unless this process has given the same sentence before.

    What tells one event from another, such as task and counts, belongs into the sentence; the filter does not.
    """
    with _lock:
        if sentence in _given:
            return
        _given.add(sentence)
    logger.opt(depth=1).warning(sentence)


def forget_warnings() -> None:
    """Let every warning be given again, as in a new process."""
    with _lock:
        _given.clear()
