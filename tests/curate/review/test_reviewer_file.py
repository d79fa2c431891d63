import json
import stat

import pytest

from medtasks.curate.review.review_server import Unfit, opened
from medtasks.curate.review.reviews import Judgement, problems, read_reviews, settled, unjudged
from medtasks.curate.study import DRAFTS, StudyKind
from medtasks.errors import MedTasksError

from ...held_lock import held
from ...tables import each_row
from ..reviewed_study import hallucination_study, pairs_study


def review_of(file, item, **changes):
    return file.review(item).model_copy(update=changes)


def save(file, item, **changes):
    file.save(item, review_of(file, item, **changes), file.review(item).version)


def test_what_is_saved_is_in_the_reviewers_own_file_whatever_came_first(tmp_path):
    study = pairs_study(tmp_path)
    for name, order in (("anna", ["p1", "p2", "p3"]), ("bert", ["p3", "p1", "p2"])):
        with opened(tmp_path, name) as file:
            for item in order:
                save(file, item, judgements=(Judgement(score=7), Judgement(score=3)))
            assert file.summary() == f"{name}: 3 of 3 drafts scored, 3 below 5"
    anna, bert = read_reviews(tmp_path, study)
    assert (list(anna.items), anna.items["p2"].scores) == (["p1", "p2", "p3"], (7, 3))
    files = [tmp_path / "reviews" / f"{name}.json" for name in ("anna", "bert")]
    assert files[0].read_text().replace('"anna"', '"bert"') == files[1].read_text()
    assert anna.items == bert.items
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600


def test_a_score_ticks_what_was_not_judged_and_what_is_not_correct_scores_one(tmp_path):
    study = pairs_study(tmp_path)
    with opened(tmp_path, "anna") as file:
        save(file, "p1", judgements=(Judgement(correctness=False), Judgement(score=8, relevance=False)))
        assert file.review("p1").judgements == (
            Judgement(score=1, correctness=False),
            Judgement(score=8, correctness=True, relevance=False, language=True),
        )
        save(file, "p2", judgements=(Judgement(correctness=False), Judgement()), note="hm")
        assert file.summary() == "anna: 1 of 3 drafts scored, 2 below 5"  # as on the page: one is enough
        for item in ("p1", "p2"):
            file.save(item, unjudged(file.drafts[item]), file.review(item).version)
    assert read_reviews(tmp_path, study)[0].items == {}  # everything was taken back


@each_row(
    "changes, field, why",
    [
        ({"question": "  "}, "question", "the question is empty"),
        ({"options": ("In  the apex", "in the Apex")}, "options.1", "option B says the same as option A"),
        ({"options": ("", "x")}, "options.0", "option A is empty"),
        ({"answers": ("A", "C")}, "answers.1", "the answer is none of A, B"),
        ({"judgements": (Judgement(), Judgement(score=11))}, "judgements.1.score", "the score is none of 1 to 10"),
        (
            {"judgements": (Judgement(score=5, correctness=False), Judgement())},
            "judgements.0.score",
            "a question that is not correct has score 1; say first that it is correct",
        ),
        ({"hallucination": "anatomy"}, "hallucination", "questions of this study have no type"),
        ({"judgements": (Judgement(),)}, "", "it does not have the options, images or categories of the draft"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_field(tmp_path, changes, field, why):
    pairs_study(tmp_path)
    with opened(tmp_path, "anna") as file:
        with pytest.raises(Unfit) as refused:
            save(file, "p1", **changes)
        assert refused.value.problems == {field: why}
    assert not file.path.exists()


def test_an_open_question_needs_an_answer_and_a_type_one_of_four(tmp_path):
    for kind, changes, why in (
        (StudyKind.KNOWLEDGE_OPEN, {"answers": (" ",)}, {"answers.0": "the answer is empty"}),
        (
            StudyKind.VISUAL_CLOSED,
            {"hallucination": "mood"},
            {"hallucination": "it is none of anatomy, measurement, symptom, technique"},
        ),
    ):
        hallucination_study(tmp_path / kind, kind)
        with opened(tmp_path / kind, "anna") as file:
            draft = file.drafts["im1/1"]
            assert problems(draft, review_of(file, "im1/1", **changes)) == why
    assert settled(draft, unjudged(draft).model_copy(update={"hallucination": "anatomy"})) == unjudged(draft)


def test_only_one_process_works_on_a_reviewers_file(tmp_path):
    pairs_study(tmp_path)
    with opened(tmp_path, "anna"), opened(tmp_path, "bert"):
        pass
    with (
        held(tmp_path / "reviews" / ".anna.lock"),
        pytest.raises(MedTasksError, match="being reviewed by another process"),
        opened(tmp_path, "anna"),
    ):
        pass
    with opened(tmp_path, "anna") as file:
        pass
    with pytest.raises(MedTasksError, match="was ended"):
        save(file, "p1", note="too late")


def test_what_was_drafted_anew_is_not_judged_yet_and_the_old_word_is_kept_until_then(tmp_path):
    pairs_study(tmp_path)
    with opened(tmp_path, "anna") as file:
        save(file, "p1", note="old")
        save(file, "p2", note="stays")
    lines = (tmp_path / DRAFTS).read_text().splitlines()
    lines[0] = lines[0].replace("Where is", "Where exactly is")
    (tmp_path / DRAFTS).write_text("\n".join(lines) + "\n")
    with opened(tmp_path, "anna") as file:
        assert file.review("p1") == unjudged(file.drafts["p1"])
        save(file, "p2", note="stays here")
        assert json.loads(file.path.read_text())["items"]["p1"]["note"] == "old"
        save(file, "p1", note="new")
        assert json.loads(file.path.read_text())["items"]["p1"]["note"] == "new"


def test_a_study_that_cannot_be_reviewed_is_one_sentence(tmp_path):
    pairs_study(tmp_path)
    for file, content, sentence in (
        ("images.jsonl", "", "6 images of drafts are not in"),
        (DRAFTS, "", "no drafts to review yet"),
        ("study.json", "{", "study.json is damaged"),
    ):
        (tmp_path / file).write_text(content)
        with pytest.raises(MedTasksError, match=sentence), opened(tmp_path, "anna"):
            pass
