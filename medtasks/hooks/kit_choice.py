"""MedEvalKit's questions with options."""

from medtasks.families.abstentions import abstaining
from medtasks.families.choice import KIT_CHOICE
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(KIT_CHOICE)
METRIC_LIST = metric_list(KIT_CHOICE.metrics)

_ABSTAINING = abstaining(KIT_CHOICE)
process_abstaining = hook(_ABSTAINING)
ABSTAINING_METRIC_LIST = metric_list(_ABSTAINING.metrics)
