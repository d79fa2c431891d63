"""The names that task files use.

``choice``, ``pairs`` and the other modules of one question type each have ``process_results`` and ``METRIC_LIST``:

    process_results: !function medtasks.hooks.choice.process_results
    metric_list: !function medtasks.hooks.choice.METRIC_LIST

Prompts are in ``prompts``, ``few_shot`` and ``volumes``, images in ``images``, filters in ``filters``.
"""
