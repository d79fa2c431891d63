"""Yes/no questions, and such with options, by kind and source."""

from medtasks.families.closed_questions import CLOSED_QUESTIONS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(CLOSED_QUESTIONS)
METRIC_LIST = metric_list(CLOSED_QUESTIONS.metrics)
