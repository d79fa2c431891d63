"""Reports, with MultiMedEval's metrics."""

from medtasks.families.free_texts import MULTIMEDEVAL_REPORTS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(MULTIMEDEVAL_REPORTS)
METRIC_LIST = metric_list(MULTIMEDEVAL_REPORTS.metrics)
