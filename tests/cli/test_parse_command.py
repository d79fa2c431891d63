"""``medtasks parse``: one answer rule over lines of standard input."""

import json

from ..tables import each_row

OPTIONS = ["A smooth wall", "A round bulge"]


def lines(*items):
    return "\n".join(item if isinstance(item, str) else json.dumps(item) for item in items)


def answers(ran):
    assert (ran.code, ran.err) == (0, "")
    return [tuple(json.loads(line).values()) for line in ran.out.splitlines()]


def test_rules_read_the_same_replies_differently(medtasks, fails):
    bulge = {"reply": "A round bulge", "options": OPTIONS}
    stdin = lines({"reply": "The answer is A."}, "", {"reply": "(b)"}, bulge, {"reply": None})
    reference = answers(medtasks("parse", "mediconfusion_reference", stdin=stdin))
    assert [value for value, _ in reference] == ["A", None, "A", None]
    robust = answers(medtasks("parse", "robust_choice", stdin=stdin))
    assert robust == [("A", "ok"), ("B", "ok"), ("B", "ok"), (None, "empty")]
    assert answers(medtasks("parse", "robust_choice", stdin="\n\n")) == []
    unknown = fails(["parse", "robust_choise"], "unknown answer rule 'robust_choise'; did you mean 'robust_choice'?")
    assert unknown.out == ""


@each_row(
    "line, part",
    [
        ("nonsense", "is not an object like"),
        *((line, "it is no object") for line in ("[1]", '"text"')),
        ("{}", "'reply' is missing"),
        ('{"reply": 5}', "'reply' must be text or null"),
        *(
            (f'{{"reply": "A", "options": {options}}}', "'options' a list of texts")
            for options in ('"yes"', "null", "[1, 2]", '{"A": "yes"}')
        ),
    ],
)
def test_malformed_line(fails, line, part):
    ran = fails(["parse", "robust_choice"], "standard input line 2", part, stdin=lines({"reply": "B"}, line))
    assert ran.out.count("\n") == 1  # what came before is answered


def test_standard_input_that_is_no_text(fails, monkeypatch):
    fails(["parse", "robust_choice"], "standard input is not UTF-8 text", stdin=b'{"reply": "\xff"}\n')
