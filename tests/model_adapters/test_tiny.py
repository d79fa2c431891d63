"""``medtasks_tiny`` itself; its trained weights, which see, show that caches, batches and shards change no answer."""

import pytest
import torch
from medtasks.model_adapters.tiny import MedTasksTiny

from .. import synthetic_images
from ..tables import each_row
from .toys import Bench, assert_pairs


def weights(**arguments):
    tiny = MedTasksTiny(device="cpu", weights="random", **arguments)
    return torch.cat([weight.flatten() for weight in tiny.network.parameters()])


def test_the_seed_alone_decides_the_weights():
    first = weights(seed=1)
    torch.manual_seed(5)
    assert torch.equal(weights(seed=1), first)
    assert not torch.equal(weights(seed=2), first)


def test_norms_compute_in_float64(bench):
    """Llama's own norms do not; in eight digits, padding could tip a decision."""
    layers = [
        module
        for module in bench.adapter.network.modules()
        if type(module).__name__.endswith("Norm")
    ]
    assert layers
    for layer in layers:
        row = torch.linspace(-1, 1, layer.weight.numel(), dtype=torch.float64)
        assert not torch.equal(layer(row), layer(row.float().double()))


def test_clean_releases_network_and_features(new_bench):
    bench = new_bench()
    bench.adapter.generate_until(bench.generation([0]))
    assert bench.adapter._features.used > 0

    bench.adapter.clean()

    assert bench.adapter._features.used == 0
    assert not hasattr(bench.adapter, "network")


OPTIONS = '\n("A": on the left)\n("B": on the right)\nAnswer with a letter.'


@pytest.fixture
def listed(new_bench, docs):
    """A bench whose questions list two options."""
    return new_bench(
        docs=[{**doc, "question": doc["question"] + OPTIONS} for doc in docs], batch_size=5
    )


def test_a_reply_to_listed_options_begins_with_the_letter_that_is_most_likely(listed):
    replies = listed.adapter.generate_until(listed.generation())

    losses = [loss for loss, _ in listed.adapter.loglikelihood(listed.scoring(("A", "B")))]
    preferred = [
        "AB"[int(second < first)]
        for first, second in zip(losses[::2], losses[1::2], strict=True)
    ]
    said = [(reply, letter) for reply, letter in zip(replies, preferred, strict=True) if reply]
    assert len(said) > len(replies) / 2
    assert all(reply[0] == letter for reply, letter in said)
    assert {reply[0] for reply, _ in said} == {"A", "B"}
    assert max(map(len, replies)) <= 12


def test_a_reply_to_listed_options_ends_at_stop_strings(listed):
    replies = listed.adapter.generate_until(listed.generation())
    until_dot = listed.adapter.generate_until(listed.generation(range(5), until=["."]))
    assert until_dot == [reply.partition(".")[0] for reply in replies[:5]]


def test_a_reply_without_options_begins_with_anything(bench):
    assert not all(
        reply[:1] in "AB" for reply in bench.adapter.generate_until(bench.generation(range(5)))
    )


def test_made_up_wording_follows_from_the_prompt_and_keeps_the_reply(new_bench):
    plain, wordy = (new_bench(wording=wording).adapter for wording in ("plain", "made_up"))
    bench = new_bench(wording="made_up", batch_size=3)
    requests = bench.generation()
    replies, said = (adapter.generate_until(requests) for adapter in (plain, bench.adapter))
    assert said == wordy.generate_until(requests)  # whatever the batches
    assert (
        len(
            {
                text.replace(reply, "_")
                for reply, text in zip(replies, said, strict=True)
                if reply
            }
        )
        >= 4
    )
    assert all(
        reply in text
        for reply, text in zip(replies, said, strict=True)
        if "cannot interpret" not in text
    )
    assert (plain.remark, wordy.remark) == ("", "MADE-UP WORDING")


def drawn(name, seed):
    """An image of one of the sample's kinds with another size and other grain, so that no one has seen it."""
    facts = synthetic_images.SAMPLE["images"][name]
    sheet = synthetic_images.Sheet((230 + seed, 310 - seed))
    synthetic_images._DRAWINGS[facts["draw"]](sheet, **facts.get("finding", {}))
    return sheet.finished(seed)


@pytest.fixture(scope="module")
def pairs():
    """Both questions of every pair of the sample about new images, in turn, with the letter of the right option."""
    questions = []
    for seed, pair in enumerate(synthetic_images.SAMPLE["pairs"]):
        first, second = pair["options"]
        text = f"{pair['question']}\nA: {first}\nB: {second}\nAnswer: "
        for name, letter in zip(
            pair["images"], (pair["answer"], "AB".replace(pair["answer"], "")), strict=True
        ):
            questions.append(
                {
                    "question": text,
                    "image": drawn(name, seed),
                    "letter": letter,
                    "options": (first, second),
                }
            )
    return questions


def solved(replies, questions):
    """Shares of right replies, and of pairs with two of them."""
    right = [
        reply == question["letter"] for reply, question in zip(replies, questions, strict=True)
    ]
    both = [first and second for first, second in zip(right[::2], right[1::2], strict=True)]
    return sum(right) / len(right), sum(both) / len(both)


def test_the_trained_model_sees(pairs):
    bench = Bench(pairs, weights="trained", batch_size=32)
    replies = bench.adapter.generate_until(bench.generation())
    assert solved(replies, pairs)[1] >= 0.85


def test_the_trained_model_scores_what_it_sees(pairs):
    bench = Bench(pairs, weights="trained", batch_size=32)

    scores = [loss for loss, _ in bench.adapter.loglikelihood(bench.scoring(("A", "B")))]

    likelier = [
        "AB"[second < first] for first, second in zip(scores[::2], scores[1::2], strict=True)
    ]
    assert solved(likelier, pairs)[1] >= 0.85


def test_the_trained_model_is_blind_without_images(pairs):
    bench = Bench(pairs, weights="trained", batch_size=32)

    blind = bench.adapter.generate_until(bench.generation(visual=None))

    assert set(blind) <= {"A", "B"}
    assert solved(blind, pairs) == (0.5, 0.0), (
        "a coin: always the same answer to both questions"
    )


def test_the_trained_model_is_wrong_on_swapped_images(pairs):
    swapped = [{**pair, "image": pairs[place ^ 1]["image"]} for place, pair in enumerate(pairs)]
    bench = Bench(swapped, weights="trained")
    assert solved(bench.adapter.generate_until(bench.generation()), pairs)[0] <= 0.15


@each_row("text", ["Ist das eine Fraktur?", ""])
def test_the_trained_model_answers_words_that_it_does_not_know(pairs, text):
    bench = Bench([{"question": text, "image": pairs[0]["image"]}], weights="trained")
    assert all(map(str.isascii, bench.adapter.generate_until(bench.generation())))
    assert all(
        loss > 0
        for loss, _ in bench.adapter.loglikelihood(bench.scoring(("ja", " nein danke")))
    )


def test_caches_batches_and_shards_change_no_answer_of_a_model_that_sees(pairs, subtests):
    pairs = pairs[:10]
    plain = Bench(
        pairs, weights="trained", batch_size=1, prefix_cache=False, feature_cache_mb=0
    )
    replies = plain.adapter.generate_until(plain.generation())
    assert len(set(replies)) == 2
    options = (" In the left half of the picture", "A", "B")
    scores = plain.adapter.loglikelihood(plain.scoring(options))

    @each_row(
        ("arguments", "shards"),
        [
            ({"batch_size": 32}, 1),
            ({"batch_size": 7, "prefix_cache": False}, 1),
            ({"batch_size": 4, "feature_cache_mb": 0, "prefix_cache_mb": 0}, 3),
            ({"batch_size": 1, "batch_tokens": 300}, 2),
        ],
    )
    def check(arguments, shards):
        bench = Bench(pairs, weights="trained", **arguments)
        answers, losses = {}, {}
        for shard in range(shards):
            numbers = range(shard, len(pairs), shards)
            answers |= dict(
                zip(
                    numbers,
                    bench.adapter.generate_until(bench.generation(numbers)),
                    strict=True,
                )
            )
            of_shard = bench.adapter.loglikelihood(bench.scoring(options, numbers))
            losses |= {
                number: of_shard[3 * at : 3 * at + 3] for at, number in enumerate(numbers)
            }
        assert [answers[number] for number in range(len(pairs))] == replies
        assert_pairs(
            [score for number in range(len(pairs)) for score in losses[number]], scores, 1e-9
        )

    check(subtests=subtests)
