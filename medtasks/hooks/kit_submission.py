"""Answers to submit, by the questions' ids."""

from medtasks.families.submission import ANSWERS_TO_SUBMIT
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(ANSWERS_TO_SUBMIT)
METRIC_LIST = metric_list(ANSWERS_TO_SUBMIT.metrics)
