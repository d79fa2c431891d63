"""``--model_args``."""

import pytest
import torch
from medtasks.model_adapters.base.arguments import (
    AdapterArguments,
    choose_device,
    parse_arguments,
)
from medtasks.model_adapters.tiny import MedTasksTiny

from medtasks.errors import AdapterArgumentError, MedTasksError

from ..tables import each_row


def refusal(**arguments):
    with pytest.raises(AdapterArgumentError) as caught:
        MedTasksTiny(**arguments)
    return str(caught.value)


def test_a_misspelt_argument_is_answered_with_its_near_match_and_the_known_ones():
    assert refusal(sed=0) == (
        "medtasks_tiny has no argument 'sed'; did you mean 'seed'? "
        "Known: batch_size, batch_tokens, device, feature_cache_mb, journal, loglikelihood_format, max_batch_size, "
        "max_failed, max_new_tokens, prefix_cache, prefix_cache_mb, seed, token_counts, weights, wording."
    )


@each_row(
    "name, value, wanted",
    [
        ("batch_size", 0, "a whole number of at least 1"),
        ("batch_size", True, "a whole number of at least 1"),
        ("batch_size", float("inf"), "a whole number of at least 1"),
        ("max_new_tokens", -1, "a whole number of at least 1"),
        ("seed", "x", "a whole number of at least 0 and at most 9223372036854775807"),
        ("max_failed", 1.5, "a number of at least 0 and at most 1"),
    ],
)
def test_an_impossible_value_is_named_with_what_is_wanted(name, value, wanted):
    assert (
        refusal(**{name: value})
        == f"medtasks_tiny: argument '{name}' must be {wanted}, not '{value}'."
    )


@each_row("given", ["auto", "auto:4"])
def test_an_automatic_batch_size_is_a_large_one_within_the_limits(given):
    assert parse_arguments(AdapterArguments, {"batch_size": given}, "m").batch_size == 64
    with pytest.raises(AdapterArgumentError):
        parse_arguments(AdapterArguments, {"batch_size": f"{given}x"}, "m")


@each_row("device", ["cudda", "mps", "cuda:99"])
def test_an_unusable_device_is_refused(device):
    assert f"device '{device}' is not present; give cpu" in refusal(device=device)


def test_model_args_are_text_or_numbers():
    given = MedTasksTiny(
        batch_size="4", seed=1e2, max_failed="0.5", device=None, max_new_tokens=None
    ).arguments
    assert (given.batch_size, given.seed, given.max_failed, given.max_new_tokens) == (
        4,
        100,
        0.5,
        32,
    )


def test_model_args_win_over_the_options_that_the_harness_always_passes():
    harness = {"batch_size": 1, "max_batch_size": None, "device": "cpu"}
    assert (
        MedTasksTiny.create_from_arg_string("seed=3,batch_size=8", harness).arguments.batch_size
        == 8
    )
    assert MedTasksTiny.create_from_arg_string("seed=3", harness).arguments.batch_size == 1
    assert MedTasksTiny.create_from_arg_string("", {}).arguments.batch_size == 16


def test_model_args_have_values():
    with pytest.raises(AdapterArgumentError, match="key=value"):
        MedTasksTiny.create_from_arg_string("seed")


def test_processes_that_accelerate_does_not_connect_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    words = r"2 processes were started, but accelerate connects 1; .*ACCELERATE_USE_CPU"
    with pytest.raises(MedTasksError, match=words):
        MedTasksTiny(device="cpu")


def test_each_of_several_processes_keeps_the_device_accelerate_gave_it(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    own = torch.device("cuda:1")
    assert choose_device("cuda:0", own, 2, "m") == own
    assert choose_device("cuda", own, 2, "m") == own
    assert choose_device(None, own, 2, "m") == own
    assert choose_device("cuda:0", own, 1, "m") == torch.device("cuda:0")
    with pytest.raises(
        AdapterArgumentError, match=r"does not fit 2 processes .*ACCELERATE_USE_CPU=true"
    ):
        choose_device("cpu", own, 2, "m")
