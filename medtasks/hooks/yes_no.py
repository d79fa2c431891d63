"""Yes/no questions."""

from medtasks.families.closed_questions import CLOSED_QUESTIONS, YES_NO_METRICS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(CLOSED_QUESTIONS)
METRIC_LIST = metric_list(YES_NO_METRICS)
