"""Rad-ReStruct's single- and multiple-choice questions."""

from medtasks.families.kit_questions import RAD_RESTRUCT
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(RAD_RESTRUCT)
METRIC_LIST = metric_list(RAD_RESTRUCT.metrics)
