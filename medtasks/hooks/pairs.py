"""Pairs of images with one question."""

from medtasks.families.abstentions import abstaining
from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(PAIRED_CHOICE)
METRIC_LIST = metric_list(PAIRED_CHOICE.metrics)

_ABSTAINING = abstaining(PAIRED_CHOICE)
process_abstaining = hook(_ABSTAINING)
ABSTAINING_METRIC_LIST = metric_list(_ABSTAINING.metrics)
