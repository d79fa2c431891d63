"""No answer of LLaVA-Med, RadFM or Med-Flamingo depends on its batch, on sharing, or on what is kept of images."""

import pytest
from medtasks.model_adapters.base.generation import GenerationSettings

from medtasks.extract.failure import failure_cause

from ..tables import each_row
from . import llava_med_toy, med_flamingo_toy
from .toys import SPLIT, TASK, instances, noise

OPTIONS = (" yes", " a large effusion in the left lung", "no nodule")
DOCS = {
    "llava_med": llava_med_toy.DOCS,
    "radfm": [
        {"question": "is the left lung clear?", "images": [noise(1)]},
        {"question": "no", "images": []},
        {"question": "choose one option. a large effusion, answer: yes?", "images": [noise(2), noise(3)]},
        {"question": "is it?", "images": [noise(1)]},
        {"question": "nodule?", "images": [noise(4, (9, 40))]},
    ],
    "med_flamingo": [doc | {"images": med_flamingo_toy.visuals(doc)} for doc in med_flamingo_toy.DOCS],
}
EVERY_MODEL = pytest.mark.parametrize("name", DOCS)
SHARED = pytest.mark.parametrize("shared", [False, True])


@pytest.fixture(scope="module")
def one_by_one(build):
    """Scores and replies per model, through the harness's calls, without batches and caches."""
    alone = {name: build(name, batch_size=1, prefix_cache=False, feature_cache_mb=0, max_failed=0) for name in DOCS}
    return {name: answers(name, model) for name, model in alone.items()}


def answers(name, model):
    model.task_dict = {TASK: {SPLIT: DOCS[name]}}
    scores = model.loglikelihood(instances("loglikelihood", DOCS[name], OPTIONS))
    asked = instances("generate_until", DOCS[name], [{"until": ["\n\n"], "max_new_tokens": 8}])
    return scores, model.generate_until(asked)


@EVERY_MODEL
@SHARED
@each_row("size", [3, 64])
def test_batches_change_nothing(build, one_by_one, name, size, shared):
    expected, said = one_by_one[name]
    scores, replies = answers(name, build(name, batch_size=size, prefix_cache=shared, max_failed=0))
    assert replies == said
    assert not any(failure_cause(reply) for reply in replies)
    assert [mean for mean, _ in scores] == pytest.approx([mean for mean, _ in expected], abs=1e-4)
    assert [greedy for _, greedy in scores] == [greedy for _, greedy in expected]


@EVERY_MODEL
@SHARED
def test_a_batch_runs_as_one(build, one_by_one, name, shared):
    """Without the harness's loop, which would quietly run the samples of a failing batch one by one."""
    model, (expected, said) = build(name, prefix_cache=shared), one_by_one[name]
    items = [model.encode_pair(doc["question"], option, doc["images"]) for doc in DOCS[name] for option in OPTIONS]
    means = [score.mean for score in model.score_batch(items)]
    assert means == pytest.approx([mean for mean, _ in expected], abs=1e-4)
    prompts = [model.encode(doc["question"], doc["images"]) for doc in DOCS[name]]
    replies = model.generate_batch(prompts, GenerationSettings(8, ("\n\n",)), 0)
    assert [reply.strip() for reply in replies] == said
