"""The same, eleven reports to a request."""

from medtasks.families.free_texts import COMPONENT_REPORTS_ELEVEN
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(COMPONENT_REPORTS_ELEVEN)
METRIC_LIST = metric_list(COMPONENT_REPORTS_ELEVEN.metrics)
