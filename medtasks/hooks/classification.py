"""Images of one class each."""

from medtasks.families.abstentions import abstaining
from medtasks.families.classification import CLASSIFICATION
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(CLASSIFICATION)
METRIC_LIST = metric_list(CLASSIFICATION.metrics)

_ABSTAINING = abstaining(CLASSIFICATION)
process_abstaining = hook(_ABSTAINING)
ABSTAINING_METRIC_LIST = metric_list(_ABSTAINING.metrics)
