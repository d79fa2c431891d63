"""Questions with options, one of them right."""

from medtasks.families.abstentions import abstaining
from medtasks.families.choice import SINGLE_CHOICE
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(SINGLE_CHOICE)
METRIC_LIST = metric_list(SINGLE_CHOICE.metrics)

_ABSTAINING = abstaining(SINGLE_CHOICE)
process_abstaining = hook(_ABSTAINING)
ABSTAINING_METRIC_LIST = metric_list(_ABSTAINING.metrics)
