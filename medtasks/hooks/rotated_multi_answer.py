"""Questions with several right options, in every rotation."""

from medtasks.families.rotations import ROTATED_MULTI_SELECT
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(ROTATED_MULTI_SELECT)
METRIC_LIST = metric_list(ROTATED_MULTI_SELECT.metrics)
