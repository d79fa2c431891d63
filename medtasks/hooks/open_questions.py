"""Open and yes/no questions, as MultiMedEval scores them."""

from medtasks.families.kit_questions import OPEN_QUESTIONS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(OPEN_QUESTIONS)
METRIC_LIST = metric_list(OPEN_QUESTIONS.metrics)
