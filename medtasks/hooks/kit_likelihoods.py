"""MedEvalKit's questions with options, by the options' likelihoods."""

from medtasks.families.abstentions import abstaining
from medtasks.families.choice import KIT_LIKELIHOODS
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(KIT_LIKELIHOODS)
METRIC_LIST = metric_list(KIT_LIKELIHOODS.metrics)

_ABSTAINING = abstaining(KIT_LIKELIHOODS)
process_abstaining = hook(_ABSTAINING)
ABSTAINING_METRIC_LIST = metric_list(_ABSTAINING.metrics)
