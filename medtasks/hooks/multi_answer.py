"""Questions with options, several of them right."""

from medtasks.families.choice import MULTI_SELECT
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(MULTI_SELECT)
METRIC_LIST = metric_list(MULTI_SELECT.metrics)
