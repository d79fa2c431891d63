"""Pairs of images with one question, free replies read by a judge."""

from medtasks.families.paired_choice import FREE_FORM
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(FREE_FORM)
METRIC_LIST = metric_list(FREE_FORM.metrics)
