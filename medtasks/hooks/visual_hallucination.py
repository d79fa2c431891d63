"""MedHEval's reports, whose components a judge counts."""

from medtasks.families.free_texts import COMPONENT_REPORTS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(COMPONENT_REPORTS)
METRIC_LIST = metric_list(COMPONENT_REPORTS.metrics)
