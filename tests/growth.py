"""Tests that time grows no faster than a text: by its growth, so that a slow or busy machine changes nothing."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

SIZES = (400, 1_600, 6_400, 25_600)  # characters, each four times the one before
# Times the CPU time for a text of four times the length: 4 where time is linear, 16 where it is quadratic.
_TOO_MUCH = 8
# Seconds of CPU time. Below it noise counts, and above it no longer text is needed.
_MEASURABLE = 0.015
_HANGS = 20.0  # seconds of CPU time for one text
_REPEATS = 5


def assert_linear(read: Callable[[str], object], piece: str, lead: str = "The answer") -> None:
    """Assert that ``read`` takes time in proportion to the length of a text that repeats a piece after a lead.

    What seems too much is measured again: the least of several times is compared.
    """

    def seconds_for(size: int, number: int) -> float:
        text = f"{lead}{piece * (size // len(piece))}{'x' * (number + 2)}"  # another one each time: results are cached
        with _no_longer_than(_HANGS, f"{piece!r}: more than {_HANGS} s for {size} characters"):
            start = time.thread_time()
            read(text)
            return time.thread_time() - start

    shorter = seconds_for(SIZES[0], 0)
    for size in SIZES[1:]:
        seconds = seconds_for(size, 0)
        if seconds > max(_MEASURABLE, _TOO_MUCH * shorter):
            times = [(seconds_for(size // 4, n), seconds_for(size, n)) for n in range(_REPEATS)]
            shorter, seconds = map(min, zip(*times, strict=True))
            assert seconds <= max(_MEASURABLE, _TOO_MUCH * shorter), (
                f"{piece!r}: {shorter:.3f} s for {size // 4} characters and {seconds:.3f} s for {size}"
            )
        if seconds > _MEASURABLE:
            break
        shorter = seconds


@contextlib.contextmanager
def _no_longer_than(seconds: float, message: str) -> Iterator[None]:
    """Fail where the process computes for longer, be it within one regular expression."""

    def fail(*_: object) -> None:
        raise AssertionError(message)

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
