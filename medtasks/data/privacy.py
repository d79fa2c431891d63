"""Which datasets' text and paths stay out of logs and results."""

import os

from medtasks.data.dataset_info import Access
from medtasks.data.own_datasets import access_of

LOG_TEXT_VARIABLE = "MEDTASKS_LOG_TEXT"


def is_private(dataset: str) -> bool:
    """Return whether nothing from a dataset's records may enter a log.

    That is so for credentialed datasets, those whose access nobody knows included, unless the user names them:
    ``MEDTASKS_LOG_TEXT=<dataset>[,<dataset>]``.
    """
    shown = {name.strip() for name in os.environ.get(LOG_TEXT_VARIABLE, "").split(",")} - {""}
    return dataset not in shown and access_of(dataset) is Access.CREDENTIALED
