"""Questions with options, replies without a letter read by a judge."""

from medtasks.families.choice import JUDGED_CHOICE
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(JUDGED_CHOICE)
METRIC_LIST = metric_list(JUDGED_CHOICE.metrics)
