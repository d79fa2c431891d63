"""Weights that metrics of reports lack on this machine, and the command that fetches them."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from medtasks.errors import MedTasksError
from medtasks.metrics.cider import tokenizer_command
from medtasks.metrics.meteor import load_wordnet
from medtasks.metrics.model_settings import TOKENIZER, WORDNET, weights_path
from medtasks.metrics.report_metrics import REPORT_METRICS


def fetch_command(metrics: Iterable[str]) -> str:
    """Return the command that fetches the weights that metrics of reports lack on this machine.

    Args:
        metrics: Names of metrics, or keys of their scores.

    Returns:
        The command, empty if nothing is missing.
    """
    names_or_keys = set(metrics)
    needed: dict[str, None] = {}
    for info in REPORT_METRICS.values():
        if names_or_keys & {info.name, *info.keys}:
            needed |= dict.fromkeys(info.weights)
    missing = [name for name in needed if name != TOKENIZER and weights_trouble(name)]
    if not missing:
        return ""
    return f"medtasks weights fetch {' '.join(missing)}"


def weights_trouble(name: str) -> MedTasksError | None:
    """Try to open weights, and return the error, or None if they open.

    Args:
        name: Entry of :data:`~medtasks.metrics.model_settings.WEIGHTS`, ``WORDNET`` or ``TOKENIZER``.
    """
    openers: Mapping[str, Callable[[], object]] = {
        WORDNET: load_wordnet,
        TOKENIZER: tokenizer_command,
    }
    try:
        openers.get(name, partial(weights_path, name))()
    except MedTasksError as error:
        return error
    return None
