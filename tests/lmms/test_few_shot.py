"""``--num_fewshot`` where a task cannot take it."""

from types import SimpleNamespace

import pytest

from medtasks.errors import MedTasksError
from medtasks.lmms.evaluation import refuse_examples


def task(shots, **more):
    return SimpleNamespace(config=SimpleNamespace(num_fewshot=shots), **more)


def test_a_task_without_anything_to_choose_examples_with():
    with pytest.raises(MedTasksError, match=r"asks one and two for solved examples.*leave it out"):
        refuse_examples({"one": task(2), "none": task(0), "two": task(1), "able": task(5, sampler=object())})


def test_tasks_that_show_none_or_can_choose():
    refuse_examples({"none": task(0), "unset": task(None), "able": task(5, sampler=object())})
