"""Classes in every rotation of the options."""

from medtasks.families.rotations import ROTATED_CLASSES
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(ROTATED_CLASSES)
METRIC_LIST = metric_list(ROTATED_CLASSES.metrics)
