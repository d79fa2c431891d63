"""MedHEval's open questions, graded by a judge."""

from medtasks.families.free_texts import KNOWLEDGE_QUESTIONS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(KNOWLEDGE_QUESTIONS)
METRIC_LIST = metric_list(KNOWLEDGE_QUESTIONS.metrics)
