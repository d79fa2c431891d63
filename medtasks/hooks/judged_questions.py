"""Closed and open questions, open answers read by a judge."""

from medtasks.families.kit_questions import JUDGED_QUESTIONS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(JUDGED_QUESTIONS)
METRIC_LIST = metric_list(JUDGED_QUESTIONS.metrics)
