from medtasks.curate.drafts import Draft
from medtasks.curate.review.reviewer_agreement import balanced


def draft(number, letter, options=("Yes", "No"), question="Is it?"):
    return Draft(item_id=f"i/{number}", images=("i",), question=question, options=options, answers=(letter,))


def drafts(yes, no, question="Is it?"):
    letters = ["A"] * yes + ["B"] * no
    return {f"i/{number}": draft(number, letter, question=question) for number, letter in enumerate(letters)}


def test_as_many_yes_as_no_and_nothing_else_goes():
    study = drafts(7, 3) | {"c": draft("c", "C", ("CT", "MRI", "X-ray")), "o": draft("o", "Fluid", ())}
    kept, left_out = balanced(study)
    answers = [study[item].answers[0] for item in kept if study[item].options == ("Yes", "No")]
    assert sorted(answers) == ["A"] * 3 + ["B"] * 3
    assert {"c", "o"} <= kept
    assert left_out == {"surplus of yes": 4}
    assert balanced(drafts(2, 2)) == ({"i/0", "i/1", "i/2", "i/3"}, {})
    assert balanced(drafts(0, 2)) == (set(), {"surplus of no": 2})
    assert balanced({}) == (set(), {})


def test_either_order_of_options():
    turned = {"t": draft("t", "A", ("No", "Yes"))}
    assert balanced(drafts(1, 0) | turned)[0] == {"i/0", "t"}


def test_more_drafts_and_other_words_change_little():
    before, _ = balanced(drafts(40, 20))
    assert before != set(sorted(drafts(40, 0))[:20]) | set(drafts(40, 20).keys() - drafts(40, 0).keys())  # any images
    assert balanced(dict(reversed(drafts(40, 20, "Reworded?").items())))[0] == before
    after, _ = balanced(drafts(40, 20) | {"new": draft("new", "B")})
    assert before < after
    assert len(after - before) == 2
