"""What the harness does where a task file leaves something open."""

from medtasks.running.preflight import is_cut_at_blank_lines

from ..tables import each_row


@each_row(
    ("config", "cut"),
    [
        ({}, True),
        ({"output_type": "generate_until"}, True),
        ({"output_type": "generate_until", "generation_kwargs": None}, True),
        ({"output_type": "generate_until_multi_round", "generation_kwargs": {"max_new_tokens": 8}}, True),
        ({"generation_kwargs": {"until": []}}, False),
        ({"generation_kwargs": {"until": None}}, False),
        ({"output_type": "multiple_choice"}, False),
        ({"class": "some.Class"}, False),
        ({"fewshot_delimiter": "###"}, False),
        ({"model_specific_generation_kwargs": {"default": {"until": []}}}, False),
        ({"model_specific_generation_kwargs": {"mine": {"until": []}, "default": {}}}, False),
        ({"model_specific_generation_kwargs": {"mine": {}, "default": {"until": []}}}, True),
        ({"model_specific_generation_kwargs": {"other": {"until": []}}}, True),
    ],
)
def test_replies_cut_at_blank_lines(config, cut):
    assert is_cut_at_blank_lines(config, "mine") is cut
