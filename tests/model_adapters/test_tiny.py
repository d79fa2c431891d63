"""``medtasks_tiny`` itself."""

import torch
from medtasks.model_adapters.tiny import MedTasksTiny


def weights(**arguments):
    return torch.cat([weight.flatten() for weight in MedTasksTiny(device="cpu", **arguments).network.parameters()])


def test_the_seed_alone_decides_the_weights_in_float64_and_clean_releases_them(bench, new_bench):
    first = weights(seed=1)
    torch.manual_seed(5)
    assert torch.equal(weights(seed=1), first)
    assert not torch.equal(weights(seed=2), first)
    # Llama's own norms do; in eight digits, padding could tip a decision.
    layers = [module for module in bench.adapter.network.modules() if type(module).__name__.endswith("Norm")]
    assert layers
    for layer in layers:
        row = torch.linspace(-1, 1, layer.weight.numel(), dtype=torch.float64)
        assert not torch.equal(layer(row), layer(row.float().double()))
    bench = new_bench()
    bench.adapter.generate_until(bench.generation([0]))
    assert bench.adapter._features.used > 0
    bench.adapter.clean()
    assert bench.adapter._features.used == 0
    assert not hasattr(bench.adapter, "network")


OPTIONS = '\n("A": on the left)\n("B": on the right)\nAnswer with a letter.'


def test_a_reply_to_listed_options_begins_with_the_letter_that_is_most_likely(new_bench, docs, bench):
    asked = new_bench(docs=[{**doc, "question": doc["question"] + OPTIONS} for doc in docs], batch_size=5)
    replies = asked.adapter.generate_until(asked.generation())
    losses = [loss for loss, _ in asked.adapter.loglikelihood(asked.scoring(("A", "B")))]
    preferred = ["AB"[int(second < first)] for first, second in zip(losses[::2], losses[1::2], strict=True)]
    said = [(reply, letter) for reply, letter in zip(replies, preferred, strict=True) if reply]
    assert len(said) > len(replies) / 2
    assert all(reply[0] == letter for reply, letter in said)
    assert {reply[0] for reply, _ in said} == {"A", "B"}
    assert max(map(len, replies)) <= 12
    until_dot = asked.adapter.generate_until(asked.generation(range(5), until=["."]))
    assert until_dot == [reply.partition(".")[0] for reply in replies[:5]]
    assert not all(reply[:1] in "AB" for reply in bench.adapter.generate_until(bench.generation(range(5))))
