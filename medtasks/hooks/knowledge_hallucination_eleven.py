"""The same, eleven answers to a request."""

from medtasks.families.free_texts import KNOWLEDGE_QUESTIONS_ELEVEN
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(KNOWLEDGE_QUESTIONS_ELEVEN)
METRIC_LIST = metric_list(KNOWLEDGE_QUESTIONS_ELEVEN.metrics)
