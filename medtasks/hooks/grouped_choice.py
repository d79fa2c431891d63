"""Questions with options, scored by groups."""

from medtasks.families.abstentions import abstaining
from medtasks.families.choice import GROUPED_CHOICE
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(GROUPED_CHOICE)
METRIC_LIST = metric_list(GROUPED_CHOICE.metrics)

_ABSTAINING = abstaining(GROUPED_CHOICE)
process_abstaining = hook(_ABSTAINING)
ABSTAINING_METRIC_LIST = metric_list(_ABSTAINING.metrics)
