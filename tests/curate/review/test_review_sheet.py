import stat

import pytest
from openpyxl import load_workbook
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.curate.drafts import read_drafted
from medtasks.curate.review.review_sheet import read_sheet, write_sheet
from medtasks.curate.review.reviews import Judgement, opened
from medtasks.curate.study import DRAFTS, StudyKind, write_lines
from medtasks.errors import MedTasksError, SourceError

from ..made_up_study import hallucination_study, pairs_study


@pytest.fixture
def study(tmp_path):
    pairs_study(tmp_path / "study")
    return tmp_path / "study"


@pytest.fixture
def sheet(tmp_path):
    return tmp_path / "review.xlsx"


def written(folder, sheet, reviewer="anna"):
    with opened(folder, reviewer) as file:
        write_sheet(file, sheet)


def read(folder, sheet, reviewer="anna"):
    with opened(folder, reviewer) as file:
        return read_sheet(file, sheet)


def save(folder, item, reviewer="anna", **changes):
    with opened(folder, reviewer) as file:
        file.save({item: file.said(item).model_copy(update=changes)}, {item: file.version(item)})


def fill(sheet, **cells):
    """Set cells of an item: ``p1={"score 1": 8}``."""
    book = load_workbook(sheet)
    rows = book["review"]
    titles = {cell.value: cell.column for cell in rows[1]}
    lines = {row[0].value: row[0].row for row in rows.iter_rows(min_row=2)}
    for item, changes in cells.items():
        for title, value in changes.items():
            rows.cell(lines[item], titles[title]).value = value
    book.save(sheet)


def contents(folder, reviewer="anna"):
    return (folder / "reviews" / f"{reviewer}.json").read_text()


JUDGED = (Judgement(score=8), Judgement(score=3, language=False))


def test_equal_judgements_give_equal_files_whichever_way_they_were_made(study, sheet):
    edits = {"question": "Which side?", "options": ("=1+1", "-0.5 cm"), "answers": ("B", "A"), "note": "@anna: ä\n2nd"}
    save(study, "p2", "page", judgements=JUDGED, categories=(("pulmonary", "bone"), ("vascular",)), **edits)
    save(study, "p3", "page", judgements=(Judgement(correctness=False), Judgement()))
    written(study, sheet)
    fill(
        sheet,
        p2={
            "question": " Which side?", "option A": "=1+1", "option B": "-0.5 cm", "answer 1": "b",
            "answer 2": "A", "note": "@anna: ä\n2nd", "score 1": "8", "score 2": 3.0, "language 2": "No",
            "categories 1": "pulmonary , bone", "categories 2": "vascular",
        },
        p3={"correctness 1": "no"},
    )  # fmt: skip
    book = load_workbook(sheet)
    book["review"]["G3"].data_type = "s"
    book.save(sheet)
    assert read(study, sheet) == 2
    assert contents(study).replace('"anna"', '"page"') == contents(study, "page")


def test_an_untouched_spreadsheet_changes_nothing_and_a_second_reading_neither(study, sheet):
    save(study, "p1", judgements=JUDGED, question="=cmd|' /C calc'!A0", note="+1", options=("-a", "@b"))
    before = contents(study)
    written(study, sheet)
    assert read(study, sheet) == 0
    fill(sheet, p3={"score 1": 6})
    assert read(study, sheet) == 1
    assert read(study, sheet) == 0
    assert contents(study) != before


def test_texts_stay_texts_whatever_they_begin_with(study, sheet):
    texts = ("=1+1", "@sum", "+1", "-1")
    save(study, "p1", question=texts[0], options=texts[1:3], note=texts[3])
    written(study, sheet)
    found = [cell for row in load_workbook(sheet)["review"].iter_rows() for cell in row if cell.value in texts]
    assert {cell.value for cell in found} == set(texts)
    assert {(cell.data_type, cell.quotePrefix, cell.number_format) for cell in found} == {("s", True, "@")}


def test_it_shows_images_folds_texts_and_offers_what_a_cell_takes(study, sheet):
    (study / "drawn" / "im2.png").unlink()
    written(study, sheet)
    book = load_workbook(sheet)
    review = book["review"]
    titles = {cell.value: cell.column_letter for cell in review[1]}
    assert len(review._images) == 5
    assert "cannot be shown: its file cannot be read" in review[f"{titles['image 2']}2"].value
    assert review[f"{titles['text 1']}2"].value.startswith("Radiograph 1")
    assert review.column_dimensions[titles["text 1"]].hidden
    rules = {str(rule.sqref): (rule.type, rule.formula1) for rule in review.data_validations.dataValidation}
    assert rules[f"{titles['score 1']}2:{titles['score 1']}4"] == ("whole", "1")
    assert rules[f"{titles['answer 1']}2:{titles['answer 1']}4"] == ("list", '"A,B"')
    assert stat.S_IMODE(sheet.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", [StudyKind.VISUAL_CLOSED, StudyKind.VISUAL_OPEN])
def test_drafts_of_other_kinds_come_back_too(tmp_path, sheet, kind):
    hallucination_study(tmp_path, kind)
    written(tmp_path, sheet)
    changes = {"score": 9} | (
        {"answer": "C", "hallucination": "symptom"} if kind == "visual_closed" else {"answer": "Dense."}
    )
    fill(sheet, **{"im1/2": {"score": 9, **changes}})
    assert read(tmp_path, sheet) == 1
    with opened(tmp_path, "anna") as file:
        said = file.said("im1/2")
    assert said.judgements == (Judgement(score=9, correctness=True, relevance=True, language=True),)
    assert said.answers == (changes["answer"],)
    assert said.hallucination == changes.get("hallucination")


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ({"score 1": 11}, "K2: the score is none of 1 to 10"),
        ({"score 1": "many"}, "K2: the score is no whole number from 1 to 10"),
        ({"score 1": 7.5}, "K2: the score is no whole number from 1 to 10"),
        ({"score 1": True}, "K2: the score is no whole number from 1 to 10"),
        ({"score 1": "=1+1"}, "K2: it is a formula; write a text or a number"),
        ({"correctness 1": "perhaps"}, "L2: correctness is neither yes nor no"),
        ({"correctness 1": "no", "score 1": 9}, "K2: a question that is not correct has score 1"),
        ({"question": None}, "F2: the question is empty"),
        ({"answer 2": "C"}, "J2: the answer is none of A, B"),
        ({"option B": " in the LEFT lower lobe"}, "H2: option B says the same as option A"),
        ({"draft": "p9"}, "A2: the study has no such draft"),
        ({"draft": "p2"}, "A3: this draft is in a row above, too"),
        ({"digest": "x"}, "A2: this was drafted anew since"),
        ({"score 1": 0, "question": ""}, "F2: the question is empty; K2: the score is none of 1 to 10"),
    ],
)
def test_every_bad_cell_is_named_and_nothing_is_read(study, sheet, cells, sentence):
    written(study, sheet)
    fill(sheet, p1=cells, p3={"score 1": 7})
    with pytest.raises(SourceError) as error:
        read(study, sheet)
    assert sentence in str(error.value)
    assert "Nothing was read" in str(error.value)
    assert not (study / "reviews" / "anna.json").exists()


def test_what_a_draft_does_not_have_stays_empty(tmp_path, sheet):
    hallucination_study(tmp_path, StudyKind.KNOWLEDGE_CLOSED)
    written(tmp_path, sheet)
    fill(sheet, **{"im1/1": {"option C": "Perhaps"}})
    with pytest.raises(SourceError, match="this draft has nothing here; leave it empty"):
        read(tmp_path, sheet)


def test_a_draft_that_was_changed_elsewhere_since_is_named_and_others_keep_what_they_have(study, sheet):
    written(study, sheet)
    save(study, "p1", note="on the page")
    fill(sheet, p2={"score 1": 6})
    assert read(study, sheet) == 1
    with opened(study, "anna") as file:
        assert file.said("p1").note == "on the page"
    fill(sheet, p1={"note": "in the sheet"})
    with pytest.raises(SourceError, match="A2: this draft was changed elsewhere"):
        read(study, sheet)


def test_files_that_are_not_this_reviewers_spreadsheet_are_refused(study, sheet, tmp_path):
    with pytest.raises(SourceError, match="there is no "):
        read(study, sheet)
    sheet.write_text("no spreadsheet")
    with pytest.raises(SourceError, match="is no spreadsheet of a review"):
        read(study, sheet)
    sheet.unlink()
    written(study, sheet)
    written(study, tmp_path / "bert.xlsx", "bert")
    with pytest.raises(SourceError, match="not that of anna"):
        read(study, tmp_path / "bert.xlsx")
    other = tmp_path / "other"
    hallucination_study(other, StudyKind.VISUAL_CLOSED)
    with pytest.raises(SourceError, match="of another study"):
        read(other, sheet)
    book = load_workbook(sheet)
    book["review"].delete_cols(6)
    book.save(sheet)
    with pytest.raises(SourceError, match="lacks the columns question;"):
        read(study, sheet)


def test_a_spreadsheet_is_never_written_over(study, sheet):
    written(study, sheet)
    with pytest.raises(MedTasksError, match="exists; read it back with --read"):
        written(study, sheet)
    with pytest.raises(MedTasksError, match="let it end in"):
        written(study, sheet.with_suffix(".csv"))


def test_the_command_writes_reads_and_prints_the_agreement(study, sheet):
    def medtasks(*arguments):
        return CliRunner().invoke(app, ["curate", "review", str(study), *arguments])

    save(study, "p1", "bert", judgements=(Judgement(score=8), Judgement(score=4)))
    made = medtasks("--reviewer", "anna", "--spreadsheet", str(sheet))
    assert (made.exit_code, made.stdout.splitlines()[0]) == (0, f"drafts in {sheet}: 3; keep it as safe as the study")
    fill(sheet, p1={"score 1": 7, "score 2": 2})
    back = medtasks("--reviewer", "anna", "--read", str(sheet))
    assert f"drafts changed by {sheet}: 1" in back.stdout
    assert "anna: 1 of 3 drafts scored, 1 below 5" in back.stdout
    assert "anna and bert" in back.stdout
    alone = medtasks("--agreement")
    assert alone.stdout == back.stdout[back.stdout.index("\n", back.stdout.index("anna.json")) + 1 :]
    assert "score: " not in alone.stdout
    assert "correctness: both said the same of every question, so kappa is not defined." in alone.stdout
    both = medtasks("--read", str(sheet), "--spreadsheet", str(sheet))
    assert "take one of them" in str(both.exception)


def test_characters_that_no_spreadsheet_has_are_left_out_of_it_alone(study, sheet):
    (line, *others) = read_drafted(study).values()
    draft = line.drafts[0].model_copy(update={"item_id": "p\x071", "question": "Which\x0b\uffff side?"})
    write_lines(study / DRAFTS, [line.model_copy(update={"drafts": (draft,)}), *others])
    written(study, sheet)
    assert read(study, sheet) == 0
    fill(sheet, p1={"score 1": 8, "score 2": 9})
    assert read(study, sheet) == 1
    with opened(study, "anna") as file:
        assert file.said("p\x071").scores == (8, 9)
        assert file.said("p\x071").question == "Which\x0b\uffff side?"
