"""Reports, as MedEvalKit scores them."""

from medtasks.families.kit_reports import FAMILY
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(FAMILY)
METRIC_LIST = metric_list(FAMILY.metrics)
