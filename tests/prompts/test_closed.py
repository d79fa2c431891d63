"""Prompts of MedHEval's closed questions."""

import pytest

from medtasks.errors import MedTasksError
from medtasks.prompts.lettered import closed_option_texts, closed_prompt, closed_target
from medtasks.tasks.task_files import task_config

from ..tables import rows


def document(**columns):
    return {"question": "Is there a mass?", "kind": "binary", "choices": "", "options": ["Yes", "No"], **columns}


def organs(**columns):
    choices = {"choices": "A. Liver, B. Heart, C. Lung", "options": ["Liver", "Heart", "Lung"], "gold": "Heart"}
    return document(kind="multi-choice", question="Which organ is it?", **{**choices, **columns})


def settings(family):
    kwargs = task_config("medheval_visual_mm")["lmms_eval_specific_kwargs"]
    assert list(kwargs) == ["default", "llava_med", "radfm", "med_flamingo"]
    return kwargs[family]


@rows(
    "family, yes_no, options",
    [
        (
            family,
            "Is there a mass? Please answer Yes or No.",
            "Which organ is it? Please select from the following choices: A. Liver, B. Heart, C. Lung",
        )
        for family in ("default", "llava_med")
    ]
    + [
        (
            "radfm",
            "Is there a mass?Please answer Yes or No. Your answer:",
            "Which organ is it? A. Liver, B. Heart, C. Lung. Please select one from the choices. Your answer:",
        )
    ],
)
def test_prompts(family, yes_no, options):
    assert closed_prompt(document(), settings(family)) == yes_no
    assert closed_prompt(organs(), settings(family)) == options


@rows(
    "doc, asked",
    [
        (document(), "Is there a mass? Please answer Yes or No."),
        (organs(), "Which organ is it? Please select from the following choices: A. Liver, B. Heart, C. Lung"),
    ],
)
def test_solved_examples_of_med_flamingo(doc, asked):
    text = closed_prompt(doc, settings("med_flamingo"))
    assert text.endswith(f" Please answer Yes or No. Answer: no. <image>Question: {asked} Answer:")
    # As many places as there are images, or the model refuses the prompt.
    assert text.count("<image>") == 1
    assert text.count("<|endofchunk|>") == 2


def test_braces_in_a_question_stay():
    assert "{x}?" in closed_prompt(document(question="{x}?"), settings("default"))


@rows(
    "given, complaint",
    [
        (None, "no yes_no_template"),
        ({"options_template": "{{ question }}"}, "no yes_no_template"),
        ({"yes_no_template": "{options}"}, "cannot be filled in"),
        ({"yes_no_template": "{{ question"}, "cannot be filled in"),
    ],
)
def test_templates_that_do_not_fit(given, complaint):
    with pytest.raises(MedTasksError, match=complaint):
        closed_prompt(document(), given)


def test_options_of_likelihoods():
    assert closed_option_texts(document()) == ["Yes", "No"]
    assert closed_option_texts(organs()) == ["Liver", "Heart", "Lung"]
    assert closed_option_texts(organs(options=[], choices="left or right")) == ["left or right"]
    assert closed_target(organs()) == "Heart"
