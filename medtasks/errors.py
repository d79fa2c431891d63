"""Errors that a user can cause.

Every message is a sentence that says what happened, in which file or sample, and the command that fixes it.
"""

import contextlib
import difflib
import re
import threading
from collections.abc import Iterable, Iterator, Sequence

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_warned: set[str] = set()
_collected: list[list[str]] = []  # of nested blocks
_BEFORE_FIX = re.compile(r"; (?!also |and \d+ more)")
_warning = threading.Lock()  # judges and the harness's scoring work in several threads


class MedTasksError(Exception):
    """Base of all errors raised on purpose by this package."""

    exit_code = 1


class NoVerdict(MedTasksError):
    """``medtasks check`` has no verdict on a printed number. Its exit code 1 is one, so that this error has another."""

    exit_code = 2


class DatasetNotPrepared(MedTasksError):
    """A task was selected whose dataset does not exist under ``MEDTASKS_HOME``."""


class SourceError(MedTasksError):
    """The source given to a preparer is missing, incomplete or malformed."""


class UnknownName(MedTasksError):
    """A dataset, task, extractor or argument has an unknown name."""


class RepliesError(MedTasksError):
    """A file of recorded replies cannot be read or does not fit the task."""


class WithheldReply(RepliesError):
    """A samples file does not hold its replies, because the dataset is credentialed."""


class JudgeNotConfigured(MedTasksError):
    """A task that needs an LLM judge was selected and no judge is configured."""


class JudgeRefused(MedTasksError):
    """The judge may not see these data: credentialed text must stay on this machine."""


class ModelRefused(MedTasksError):
    """The model may not see these data: they would be sent to another machine."""


class LabelerError(MedTasksError):
    """A task needs a labeler of chest findings, and none is configured or it failed."""


class UnusableFile(SourceError, OSError):
    """A file that another one names, or holds, is of another kind, too large, or not where it may be."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.strerror = fault


class WeightsMissing(MedTasksError):
    """Weights of a metric's model are not on this machine, or cannot be read."""


class AdapterArgumentError(MedTasksError):
    """A model argument is unknown or has an impossible value."""


def plain(text: str) -> str:
    r"""Return a text in which control characters other than line ends and tabulators are question marks.

    Example:
        >>> plain("a\x1b[31m red\treply")
        'a?[31m red\treply'
    """
    return _CONTROL.sub("?", text)


def one_line(error: BaseException) -> str:
    r"""Return type and text of an error on one line of at most 300 characters.

    Example:
        >>> one_line(ValueError("not a\n  number"))
        'ValueError: not a number'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300].rstrip(": ")


def near_match(name: str, candidates: Iterable[str]) -> str:
    """Return a question for the nearest known name, or for the shortest three that contain it.

    Returns:
        The end of a message, or an empty text if no name is near.

    Example:
        >>> near_match("blue", ["bleu", "rouge"])
        "; did you mean 'bleu'?"
    """
    names = list(candidates)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not close and len(name) > 3:
        close = sorted((known for known in names if name.casefold() in known), key=len)[:3]
    quoted = " or ".join(f"'{known}'" for known in close)
    return f"; did you mean {quoted}?" if close else ""


def unknown_name(
    kind: str, name: str, candidates: Iterable[str], listing: str = ""
) -> UnknownName:
    """Build the error for an unknown name.

    Args:
        kind: Kind of the name, such as ``"task"``.
        name: The unknown name.
        candidates: The known names, which the message lists.
        listing: Command that lists them. With one, more than 20 names are not listed, but only the nearest.
    """
    names = sorted(candidates)
    hint = near_match(name, names) or "."
    if len(names) <= 20 or not listing:
        return UnknownName(f"unknown {kind} '{name}'{hint} Known: {', '.join(names)}")
    also = difflib.get_close_matches(name, names, n=5, cutoff=0.6)[1:]
    near = f" Also near: {', '.join(also)}." if also else ""
    return UnknownName(f"unknown {kind} '{name}'{hint}{near} All {len(names)}: {listing}")


def warn_once(sentence: str, level: str = "WARNING") -> None:
    """Log a warning, unless this process has given the same sentence before.

    Args:
        sentence: The warning. The harness computes every metric under every filter, so it names the task and counts,
            but not the filter.
        level: Level of loguru.
    """
    from loguru import logger

    with _warning:
        if sentence in _warned:
            return
        _warned.add(sentence)
        if _collected:
            _collected[-1].append(sentence)
            return
    logger.opt(depth=1).log(level, sentence)


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the sentences of :func:`warn_once` within the block, which are not logged then."""
    _collected.append([])
    try:
        yield _collected[-1]
    finally:
        _collected.pop()


def forget_warnings() -> None:
    """Forget all warnings, as in a new process."""
    with _warning:
        _warned.clear()


def several(sentences: Sequence[str], most: int = 10) -> str:
    """Join faults of a file to one sentence.

    Of more than ``most`` only the first are named, and the others counted. "also" tells a further fault from a fix,
    see :func:`split_fix`.

    Example:
        >>> several(["line 1 is empty", "line 4 is empty", "line 7 is empty"], most=2)
        'line 1 is empty; also line 4 is empty; and 1 more'
    """
    more = f"; and {len(sentences) - most} more" if len(sentences) > most else ""
    return "; also ".join(sentences[:most]) + more


def split_fix(message: str) -> tuple[str, str]:
    """Split the message of an error into what is wrong and how to fix it, the latter empty if it does not say.

    Example:
        >>> split_fix("line 1 is empty; also line 4 is empty; fill them in.")
        ('line 1 is empty; also line 4 is empty', 'fill them in')
    """
    sentence, *fix = _BEFORE_FIX.split(message.rstrip("."), maxsplit=1)
    return sentence, "".join(fix)


def join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and"; only the first if there are many.

    Example:
        >>> join_names(["one", "two", "three"])
        'one, two and three'
    """
    if len(names) > 4:
        return f"{', '.join(names[:4])} and {len(names) - 4} more"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
