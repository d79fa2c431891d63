"""Reports."""

from medtasks.families.free_texts import REPORTS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(REPORTS)
METRIC_LIST = metric_list(REPORTS.metrics)
