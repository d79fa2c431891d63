"""Prompts: filling templates, and the published texts letter by letter."""

from string import Template

from medtasks.prompts.lettered import letters, option_texts, prompt, target
from medtasks.tasks.task_files import task_config

from ..tables import rows, tables_of

DOC = {"question": "Which {side}?", "options": ["70% left", "Right, {maybe} "], "answer": "B"}

PUBLISHED = tables_of(__file__)["published"]  # "$q $a": of "mediconfusion_ps" question and first option as one text


@rows("task, family, published", PUBLISHED)
def test_prompt_is_the_published_one(task, family, published):
    """Of Med-Flamingo, three of four modes lack the first sign of the second separator: a slip of the reference."""
    config = task_config(task)
    settings = config["lmms_eval_specific_kwargs"]
    ours = prompt(DOC, settings.get(family, settings["default"]))
    if task == "mediconfusion_ps":
        ours += config["target_delimiter"] + option_texts(DOC)[0]
    assert ours == Template(published).substitute(q=DOC["question"], a=DOC["options"][0], b=DOC["options"][1])


def test_greedy_letter_follows_the_prompt_directly():
    assert task_config("mediconfusion_gd")["target_delimiter"] == ""


@rows("task", sorted({task for task, *_ in PUBLISHED}))
def test_only_med_flamingo_is_shown_examples(task):
    settings = task_config(task)["lmms_eval_specific_kwargs"]
    shown = {family: kwargs["demonstrations"] for family, kwargs in settings.items() if "demonstrations" in kwargs}
    assert shown == {"med_flamingo": ["PMC1064097_F2.jpg", "PMC1065025_F1.jpg", "PMC1087855_F3.jpg"]}
    assert settings["med_flamingo"]["template"].count("<image>") == len(shown["med_flamingo"])


@rows("template", ["{{ question }} ", " {{ question }}\n", "\t{{ question }}  \n ", "{ x } {{ question }}"])
def test_blanks_and_braces_stay(template):
    expected = template.replace("{{ question }}", DOC["question"])
    assert prompt(DOC, {"template": template}) == expected


def test_default_lists_all_options():
    doc = {"question": "Where?", "options": ["Here", "There", "Elsewhere"], "answer": "C"}
    expected = (
        "Where?\nA: Here\nB: There\nC: Elsewhere\nAnswer with the option's letter from the given choices directly."
    )
    assert prompt(doc) == prompt(doc, {}) == prompt(doc, None) == expected
    assert prompt(doc, {"template": "{{ option_c }}, {{ option_a }}"}) == "Elsewhere, Here"
    assert (target(doc), letters(doc), option_texts(doc)) == ("C", ["A", "B", "C"], ["Here", "There", "Elsewhere"])
