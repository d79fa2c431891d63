"""What stands around the harness's evaluation of our tasks, with a stand-in for the evaluator."""

from types import ModuleType, SimpleNamespace

import pytest

from medtasks.errors import MedTasksError
from medtasks.harness.evaluation import guard_evaluation
from medtasks.hooks import choice


class Model:
    """What a model of the harness has; nothing calls it."""

    generate_until = loglikelihood = lambda self, requests: []


@pytest.fixture
def evaluate():
    """Evaluate one task of ours with a model that nobody asks."""
    module = ModuleType("evaluator")
    calls = []

    def stand_in(lm, task_dict):
        calls.append(task_dict)
        return {"results": {"mediconfusion": {"confusion,robust": 0.5, "set_accuracy,robust": 0.25}}}

    module.evaluate = stand_in
    guard_evaluation(module)
    guard_evaluation(module)

    def run(shots):
        config = SimpleNamespace(process_results=choice.process_results, num_fewshot=shots, metadata={})
        return module.evaluate(Model(), {"mediconfusion": SimpleNamespace(config=config)}), calls

    return run


def test_examples_that_cannot_be_chosen_stop_it_before_the_first_request(evaluate):
    with pytest.raises(MedTasksError, match="--num_fewshot asks mediconfusion for solved examples"):
        evaluate(2)


def test_the_main_metric_sorts_first(evaluate):
    results, calls = evaluate(0)
    assert len(calls) == 1
    assert sorted(results["results"]["mediconfusion"]) == ["set_accuracy,robust", "confusion,robust"]
