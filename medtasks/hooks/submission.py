"""Letters to submit to a leaderboard."""

from medtasks.families.submission import SUBMISSION
from medtasks.hooks.scoring import hook, metric_list

process_results = hook(SUBMISSION)
METRIC_LIST = metric_list(SUBMISSION.metrics)
