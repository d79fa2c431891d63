"""The language of templates: Jinja2, in which a word in single braces is refused."""

import pytest

from medtasks.errors import MedTasksError
from medtasks.families.templates import fill_template, names_in_template, written_options

from ..tables import each_row

TEXT = "{a} {{ b }} {% c %} <img>\\ 'q' \"r\"\r\n Ü 😀 "
VALUES = {"question": TEXT, "number": 7, "image": "(i)", "options": ["x"], "answer": "B"}
FIELDS = ("question", "number", "image")


def fill(template):
    return fill_template(template, VALUES, FIELDS, "it is wrong")


@each_row(
    ("template", "expected"),
    [
        ("{{ question }}", TEXT),
        ("\n {{ question }} \n\n", f"\n {TEXT} \n\n"),
        ("{% if answer == 'B' %}{{ question }}{% endif %}", TEXT),
        ("{%- for option in options %}{{ loop.index }}{{ option }}{% endfor %}", "1x"),
        ("{{ number }} {'a': 1} {", "7 {'a': 1} {"),
        ("{{ '{' }}letter} {} { question }", "{letter} {} { question }"),
    ],
)
def test_what_a_template_gives(template, expected):
    assert fill(template) == expected


@each_row(
    ("template", "cause"),
    [
        (
            "{qestion}",
            "'qestion' is in single braces, write {{ qestion }}, did you mean 'question'?",
        ),
        ("{{ qestion }}", "'qestion' is undefined"),
        ("{{ question }} {a}", "'a'"),
        ("{{ question", "unexpected end of template, expected 'end of print statement'."),
        ("{{ number / 0 }}", "division by zero"),
        ("{{ question.__class__.__mro__ }}", "__class__"),
        ("{{ '{0.__class__}'.format(number) + question }}", "__class__"),
    ],
)
def test_a_template_that_cannot_be_filled_is_one_sentence(template, cause):
    with pytest.raises(MedTasksError) as told:
        fill(template)
    sentence = str(told.value)
    assert sentence.startswith("it is wrong (")
    assert cause in sentence
    assert sentence.endswith("; its fields are question, number, image")


@each_row(
    ("template", "names"),
    [
        (
            "{{ question }} {% for o in options %}{{ o }}{{ range(2) }}{% endfor %}",
            {"question", "options"},
        ),
        ("{{ question", set()),
        ("none", set()),
    ],
)
def test_what_a_template_names(template, names):
    assert names_in_template(template) == names


def test_written_options():
    form = "{{ number }}/{{ letter }}/{{ lower }}: {{ text }}"
    assert written_options(form, ["{x}", "y"]) == ["1/A/a: {x}", "2/B/b: y"]
    assert written_options(None, ("x",)) == ["x"]
    assert written_options(form, ()) == []
    unusable = r"option form '.*' is not usable .*; its fields are text, letter, lower, nu"
    with pytest.raises(MedTasksError, match=unusable):
        written_options(f"{form} {{{{ txt }}}}", ["x"])
