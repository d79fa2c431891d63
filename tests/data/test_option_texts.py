"""Options that depend on their order: texts that refer to other options, and marks that options bring along."""

from medtasks.data.option_texts import depends_on_order, refers_to_others, without_marks
from medtasks.data.samples import letter, option_index

REFERRING = """All of the above|None of the above.|ALL THE ABOVE|Any of the above|Both of the above|Neither of the above
All of these|None of them|Both of them|All options are correct|No option is correct|None of the other options
None are correct|All are correct|None of the above drugs|All of the above except B|More than one of the above
First can be any of the above but it should end with maxilla|Some of the above|Same as above|Both option 2 and 3
Both A and B|A and C|A & D|A, B and C|neither A nor C|(a) and (b)|Both (A) & (C)|A/B|A+B|Only A|A only|All except C
A, B, D, but not C|a is false and b, c, d are true|Options A and B|'B' & 'C'|A and/or B
以上都是|以上都不是|以上皆非|以上选项均正确|A和B|A、C均正确|上記のすべて
Alle genannten|Alle Antworten sind richtig|weder A noch B
Toutes les réponses ci-dessus|Aucune de ces réponses|A et B|Todas las anteriores|A y C son correctas|A e B
Nenhuma das anteriores|Tutte le precedenti|Все перечисленное|جميع ما سبق"""
OWN_MEANING = """Hepatitis A and B|Vitamin A|Vitamins A and D|T and B cells|Influenza A or B|A|B|AB|(A)|O|A+|A-|D&C
D and C|Both lungs|Neither lung|Both|Above|Both above and below the diaphragm|None|None visible|Other|True
Not true|A few|Two or more|One or two|Type A and B|A positive|A-a gradient|A/a ratio|C and D fibers|A b|Cord
Both statements are true|I and II|1 and 2|Some of these cells are capable of producing leptin
50岁以上|38以上|左右两侧|没有|不正确|正确
An opening in the wall of the trachea above the cricoid|All four chambers|First and second
Correct position of the tube"""


def texts(table):
    return table.replace("\n", "|").split("|")


def test_only_options_that_refer_to_others_are_found():
    assert [text for text in texts(REFERRING) if not refers_to_others(text, 5)] == []
    assert [text for text in texts(OWN_MEANING) if refers_to_others(text, 5)] == []
    assert (refers_to_others("A and F", 6), refers_to_others("A and F", 5)) == (True, False)


def test_marks_of_all_options_in_order_are_removed():
    bare = ["left lung", "5 mm", "right"]
    for form in (
        "{0}. {2}",
        "({1}) {2}",
        "{1}) {2}",
        "{0}: {2}",
        "{3}. {2}",
        "({3}) {2}",
        "[{0}] {2}",
        "{0} - {2}",
    ):
        marked = [form.format("ABC"[n], "abc"[n], text, n + 1) for n, text in enumerate(bare)]
        assert without_marks(marked) == bare, form
    assert without_marks(["Option A: left", " Option B: right "]) == ["left", "right"]
    assert (
        without_marks(["A.left", "B.5 mm"])
        == without_marks(["Ａ．left", "Ｂ．5 mm"])
        == ["left", "5 mm"]
    )


def test_texts_that_look_like_marks_stay():
    for options in (
        ["A. baumannii", "E. coli"],
        ["C. difficile", "A. baumannii"],
        ["1. rib", "2. rib"],
        ["1.5 mm", "2.5 mm"],
        ["1:1", "2:1"],
        ["1 - 2 cm", "2 - 3 cm"],
        ["A", "B"],
        ["A.", "B."],
        ["A+", "B-"],
        ["A-delta fibers", "B fibers"],
        ["A. left", "B. right", "both"],
        ["B. left", "A. right"],
        ["0. absent", "1. present"],
    ):
        assert not without_marks(options), options


def test_questions_that_list_their_options_or_have_marked_ones_depend_on_the_order():
    options = ["left", "right"]
    assert not depends_on_order({"question": "Which side?", "options": options})
    assert not depends_on_order(
        {"question": "Which side? (A) left (B) right", "options": options}
    )  # is rotated, too
    assert depends_on_order({"question": "Which side? A: left, B: right", "options": options})
    assert depends_on_order({"question": "Which side?", "options": ["A. left", "B. right"]})


def test_letters_after_z_have_two_characters():
    assert [letter(index) for index in (0, 25, 26, 51, 701, 702)] == [
        "A",
        "Z",
        "AA",
        "AZ",
        "ZZ",
        "AAA",
    ]
    assert [option_index(letter(index)) for index in range(1500)] == list(range(1500))
