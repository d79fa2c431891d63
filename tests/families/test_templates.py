"""The language of templates: Jinja2, and the older form that is translated into it."""

import pytest

from medtasks.errors import MedTasksError
from medtasks.families.templates import filled, names_in_template, written_options

TEXT = "{a} {{ b }} {% c %} <img>\\ 'q' \"r\"\r\n Ü 😀 "
VALUES = {"question": TEXT, "number": 7, "image": "(i)", "options": ["x"], "answer": "B"}
FIELDS = ("question", "number", "image")


def fill(template):
    return filled(template, VALUES, FIELDS, "it is wrong")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ question }}", TEXT),
        ("{question}", TEXT),
        ("{{question}} {{-number}}", f"{TEXT}7"),
        ("\n {{ question }} \n\n", f"\n {TEXT} \n\n"),
        ("\r\n {question}\t\r\n\n", f"\r\n {TEXT}\t\r\n\n"),  # as bytes, where Jinja2 would make its own line ends
        ("{% if answer == 'B' %}{{ question }}{% endif %}", TEXT),
        ("{%- for option in options %}{{ loop.index }}{{ option }}{% endfor %}", "1x"),
        ("{{ question }} <img>", f"{TEXT} <img>"),
        ("{{ question }} {question} <img>", f"{{ question }} {TEXT} (i)"),  # as it was before there was Jinja2
        ("{{ number }} {'a': 1} {", "7 {'a': 1} {"),
        ("{{question}} {question} <img>", f"{{question}} {TEXT} (i)"),
        ('{{"a": {number}}}', '{"a": 7}'),
        ("{number:03d}{question!r:.3}{number.real}", f"007{TEXT!r:.3}7"),
        ("{{% {number} %}}", "{% 7 %}"),
        ("no field 'q' \\n {{ {{x}} }}", "no field 'q' \\n { {x} }"),
        ("", ""),
    ],
)
def test_what_a_template_gives(template, expected):
    assert fill(template) == expected


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        ("{qestion}", "'qestion'"),
        ("{{ qestion }}", "'qestion' is undefined"),
        ("{{ question }} {a}", "'a'"),
        ("{answer}", "'answer'"),  # which the older form never had
        ("{question", "expected '}' before end of string"),
        ("{{ question", "unexpected end of template, expected 'end of print statement'."),
        ("{% if question %}", "Unexpected end of template."),
        ("{}", "''"),
        ("{0}", "'0'"),
        ("}", "Single '}' encountered in format string"),
        ("{question:d}", "Unknown format code 'd'"),
        ("{{ number / 0 }}", "division by zero"),
        ("{{ question + 1 }}", "can only concatenate str"),
        ("{question.__class__}", "__class__"),
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


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{question} {{x}} {options[0]}{number:d}", {"question", "options", "number"}),
        ("{{ question }} {% for o in options %}{{ o }}{{ range(2) }}{% endfor %}", {"question", "options"}),
        ("{question", set()),
        ("{{ question", set()),
        ("none", set()),
    ],
)
def test_what_a_template_names(template, names):
    assert names_in_template(template) == names


@pytest.mark.parametrize(
    "form", ["{number}/{letter}/{lower}: {text}", "{{ number }}/{{ letter }}/{{ lower }}: {{ text }}"]
)
def test_written_options(form):
    assert written_options(form, ["{x}", "y"]) == ["1/A/a: {x}", "2/B/b: y"]
    assert written_options(None, ("x",)) == ["x"]
    assert written_options(form, ()) == []
    with pytest.raises(
        MedTasksError, match=r"option form '.*' is not usable .*; its fields are text, letter, lower, nu"
    ):
        written_options(f"{form} {{{{ txt }}}}" if "{{" in form else f"{form} {{txt}}", ["x"])
