"""Log-likelihood, against a forward pass written here, and independent of batches."""

import math

import pytest
import torch
from medtasks.model_adapters.base.batching import (
    Continuation,
    Encoded,
    GenerationSettings,
    Likelihood,
    score,
    split_continuation,
)

from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause

from ..tables import each_row
from . import med_flamingo_toy
from .toys import SPLIT, TASK, instances, noise, plain_forward


def plain_score(adapter, question, images, continuation):
    prompt = adapter.encode(question, images)
    tokens = [ord(character) - ord(" ") + 6 for character in continuation]
    logs = plain_forward(adapter.network, [*prompt.ids, *tokens], prompt.pixels)
    rows = logs[len(prompt.ids) - 1 : -1]
    losses = [-rows[place, token].item() for place, token in enumerate(tokens)]
    return sum(losses) / len(losses), rows.argmax(-1).tolist() == tokens


def test_padded_batches_score_like_a_plain_forward_pass(bench, docs):
    options = (" clear", " a large effusion", "x")
    got = bench.adapter.loglikelihood(bench.scoring(options))
    asked = [
        (doc["question"], [doc["image"]] if doc["image"] else [], text)
        for doc in docs
        for text in options
    ]
    expected = [plain_score(bench.adapter, *request) for request in asked]
    assert [pair[0] for pair in got] == pytest.approx([pair[0] for pair in expected], abs=1e-9)
    assert [pair[1] for pair in got] == [pair[1] for pair in expected]


def test_images_are_used_in_order(bench, docs):
    a, b = docs[0]["image"], docs[1]["image"]
    expected = [
        plain_score(bench.adapter, docs[0]["question"], images, " clear")[0]
        for images in ([a], [a, b], [b, a])
    ]
    assert len({round(value, 6) for value in expected}) == 3
    for images, value in zip(([a], [a, b], [b, a]), expected, strict=True):
        ((got, _),) = bench.adapter.loglikelihood(
            bench.scoring((" clear",), [0], lambda _, images=images: images)
        )
        assert got == pytest.approx(value)


def test_a_function_may_stand_for_the_continuation(bench):
    (by_function,) = bench.adapter.loglikelihood(bench.scoring((lambda doc: " clear",), [2]))
    (by_text,) = bench.adapter.loglikelihood(bench.scoring((" clear",), [2]))
    assert by_function == by_text


@each_row("context, whole", [([1, 7], [1, 7]), ([1, 7], [1]), ([1], [2, 3])])
def test_nothing_to_score_is_an_error(context, whole):
    with pytest.raises(ValueError, match="token"):
        split_continuation(Encoded(context, None), Encoded(whole, None))


ITEMS = [
    Continuation(Encoded(list(range(1, 9)), None), 2),
    Continuation(Encoded([1, 2, 3], None), 1),
]


def test_logits_are_asked_for_the_longest_continuation():
    asked = []

    def logits_of(batch, keep):
        asked.append((tuple(batch.ids.shape), keep))
        return torch.zeros(*batch.ids.shape[:1], keep, 11, dtype=torch.bfloat16)

    uniform = score(ITEMS, logits_of, 0, torch.device("cpu"))

    assert asked == [((2, 8), 3)]
    assert uniform[0].total == pytest.approx(2 * math.log(11), abs=1e-6)
    assert uniform[1] == Likelihood(pytest.approx(math.log(11), abs=1e-6), 1, False)


def test_logits_of_the_continuation_have_to_be_finite():
    with pytest.raises(MedTasksError, match="not finite"):
        score(
            ITEMS[1:],
            lambda batch, keep: torch.full((1, keep, 5), math.nan),
            0,
            torch.device("cpu"),
        )


OPTIONS = (" yes", " a large effusion in the left lung", "no nodule")
QUESTIONS = [
    {"question": "is the left lung clear?", "images": [noise(1)]},
    {"question": "no", "images": []},
    {
        "question": "choose one option. a large effusion, answer: yes?",
        "images": [noise(2), noise(3)],
    },
    {"question": "is it?", "images": [noise(1)]},
    {"question": "nodule?", "images": [noise(4, (9, 40))]},
]
DOCS = {
    "llava_med": QUESTIONS,
    "radfm": QUESTIONS,
    "med_flamingo": [
        doc | {"images": med_flamingo_toy.visuals(doc)} for doc in med_flamingo_toy.DOCS
    ],
}


@pytest.fixture(scope="module")
def one_by_one(build):
    """Scores and replies per model, through the harness's calls, without batches and caches."""
    alone = {
        name: build(name, batch_size=1, prefix_cache=False, feature_cache_mb=0, max_failed=0)
        for name in DOCS
    }
    return {name: answers(name, model) for name, model in alone.items()}


def answers(name, model):
    model.task_dict = {TASK: {SPLIT: DOCS[name]}}
    scores = model.loglikelihood(instances("loglikelihood", DOCS[name], OPTIONS))
    asked = instances("generate_until", DOCS[name], [{"until": ["\n\n"], "max_new_tokens": 8}])
    return scores, model.generate_until(asked)


@each_row("name", DOCS)
@each_row("shared", [False, True])
def test_batches_change_nothing(build, one_by_one, name, shared):
    model = build(name, batch_size=64, prefix_cache=shared, max_failed=0)
    scores, replies = one_by_one[name]

    batched_scores, batched_replies = answers(name, model)

    assert batched_replies == replies
    assert not any(failure_cause(reply) for reply in replies)
    means = [mean for mean, _ in scores]
    assert [mean for mean, _ in batched_scores] == pytest.approx(means, abs=1e-4)
    assert [greedy for _, greedy in batched_scores] == [greedy for _, greedy in scores]


@each_row("name", DOCS)
@each_row("shared", [False, True])
def test_one_batch_of_all_samples_changes_nothing(build, one_by_one, name, shared):
    """Without the harness's loop, which would quietly run the samples of a failing batch one by one."""
    model = build(name, batch_size=64, prefix_cache=shared, max_failed=0)
    scores, replies = one_by_one[name]
    items = [
        model.encode_pair(doc["question"], option, doc["images"])
        for doc in DOCS[name]
        for option in OPTIONS
    ]
    prompts = [model.encode(doc["question"], doc["images"]) for doc in DOCS[name]]

    generated = model.generate_batch(prompts, GenerationSettings(8, ("\n\n",)), 0)

    means = [mean for mean, _ in scores]
    assert [score.mean for score in model.score_batch(items)] == pytest.approx(means, abs=1e-4)
    assert [reply.strip() for reply in generated] == replies
