"""Questions in every rotation of their options."""

from medtasks.families.rotations import ROTATED_CHOICE
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(ROTATED_CHOICE)
METRIC_LIST = metric_list(ROTATED_CHOICE.metrics)
