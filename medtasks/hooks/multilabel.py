"""Images with any number of findings."""

from medtasks.families.classification import MULTI_LABEL
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(MULTI_LABEL)
METRIC_LIST = metric_list(MULTI_LABEL.metrics)
