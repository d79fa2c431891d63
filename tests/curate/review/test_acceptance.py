"""Reviewers' files, drafts that they accept and in whose words, and how far reviewers agree."""

import json
import math
import stat

import pytest

from medtasks.curate.drafts import Draft
from medtasks.curate.publishing import document
from medtasks.curate.review.review_server import Unfit, open_reviewer_file
from medtasks.curate.review.reviews import (
    DISAGREED,
    TOO_LOW,
    UNSCORED,
    Judgement,
    Review,
    accept_drafts,
    agreements,
    balance_answers,
    complete_review,
    empty_review,
    problems,
    read_reviews,
    review_file,
)
from medtasks.curate.study import DRAFTS, Study, StudyImage, StudyKind
from medtasks.errors import MedTasksError

from ...held_lock import held
from ...tables import each_row
from ..reviewed_study import hallucination_study, pairs_study, scored

PAIR = Draft(
    item_id="p",
    images=("a", "b"),
    question="Which side?",
    options=("left", "right"),
    answers=("A", "B"),
    categories=(("Cardiac",), ("Spinal",)),
)


def reviews(**said):
    return [
        Review(study="s", reviewer=who, items={} if one is None else {"p": one})
        for who, one in said.items()
    ]


def left_out(*_, min_score=5, wording=None, **said):
    """Return why the pair is left out, or the pair as it is let through."""
    kept, why = accept_drafts({"p": PAIR}, reviews(**said), min_score, wording)
    assert len(kept) + sum(why.values()) == 1
    return kept.get("p") or next(iter(why))


def test_scores():
    one_low = scored(PAIR, 9, judgements=(Judgement(score=9), Judgement(score=4)))
    half = scored(PAIR, 9, judgements=(Judgement(score=9), Judgement()))
    assert left_out() == left_out(alice=None) == left_out(alice=half) == UNSCORED
    assert left_out(alice=one_low) == left_out(alice=scored(PAIR, 9), bob=one_low) == TOO_LOW
    assert left_out(alice=one_low, min_score=4) == left_out(alice=scored(PAIR, 5)) == PAIR
    assert left_out(alice=scored(PAIR, 9), bob=half) == PAIR  # nobody waits for who is not done
    wrong = scored(PAIR, 9, judgements=(Judgement(), Judgement(score=1, correctness=False)))
    assert (
        left_out(alice=scored(PAIR, 9), bob=wrong) == TOO_LOW
    )  # who found one wrong need not score the other
    assert left_out(alice=wrong) == UNSCORED
    assert left_out(alice=scored(PAIR, 9, digest="0" * 16)) == UNSCORED  # drafted anew since


def test_words_of_reviewers():
    alice = scored(PAIR, 9, question=" Where? ", options=("left ", "right"), answers=("B", "A"))
    found = left_out(alice=alice)
    assert (found.question, found.options, found.answers) == (
        "Where?",
        ("left", "right"),
        ("B", "A"),
    )
    assert found.categories == PAIR.categories
    assert left_out(alice=alice, bob=scored(PAIR, 9)) == DISAGREED
    assert left_out(alice=alice, bob=scored(PAIR, 9), wording="alice") == found
    assert left_out(alice=alice, bob=scored(PAIR, 9), carol=None, wording="carol") == DISAGREED
    assert left_out(alice=alice, bob=alice) == found


def test_categories_and_type_after_review():
    alice = scored(PAIR, 9, categories=(("Spinal",), ()))
    bob = scored(PAIR, 9, categories=(("Cardiac", "Spinal"), ("Renal",)))
    assert left_out(alice=alice, bob=bob).categories == (("Spinal", "Cardiac"), ("Renal",))
    typed = PAIR.model_copy(update={"hallucination": "anatomy"})
    said = reviews(alice=scored(typed, 9, hallucination="symptom"), bob=scored(typed, 9))
    assert accept_drafts({"p": typed}, said[:1], 5)[0]["p"].hallucination == "symptom"
    assert accept_drafts({"p": typed}, said, 5)[1] == {DISAGREED: 1}


def test_edits_by_hand_that_make_no_question():
    for changes, why in (
        ({"question": " "}, "the question is empty"),
        ({"answers": ("B", "B")}, "both images have the same answer"),
    ):
        assert left_out(alice=scored(PAIR, 9, **changes)) == f"unusable after review: {why}"


def draft(number, letter, options=("Yes", "No"), question="Is it?"):
    return Draft(
        item_id=f"i/{number}",
        images=("i",),
        question=question,
        options=options,
        answers=(letter,),
    )


def drafts(yes, no, question="Is it?"):
    letters = ["A"] * yes + ["B"] * no
    return {
        f"i/{number}": draft(number, letter, question=question)
        for number, letter in enumerate(letters)
    }


def test_as_many_yes_as_no_and_nothing_else_goes():
    study = drafts(7, 3) | {
        "c": draft("c", "C", ("CT", "MRI", "X-ray")),
        "o": draft("o", "Fluid", ()),
    }
    kept, left_out = balance_answers(study)
    answers = [study[item].answers[0] for item in kept if study[item].options == ("Yes", "No")]
    assert sorted(answers) == ["A"] * 3 + ["B"] * 3
    assert {"c", "o"} <= kept
    assert left_out == {"surplus of yes": 4}
    assert balance_answers(drafts(0, 2)) == (set(), {"surplus of no": 2})
    turned = {"t": draft("t", "A", ("No", "Yes"))}
    assert balance_answers(drafts(1, 0) | turned)[0] == {"i/0", "t"}
    before, _ = balance_answers(drafts(40, 20))  # more drafts and other words change little
    assert before != set(sorted(drafts(40, 0))[:20]) | set(
        drafts(40, 20).keys() - drafts(40, 0).keys()
    )  # any images
    assert balance_answers(dict(reversed(drafts(40, 20, "Reworded?").items())))[0] == before
    after, _ = balance_answers(drafts(40, 20) | {"new": draft("new", "B")})
    assert (before < after, len(after - before)) == (True, 2)


def test_yes_and_no_that_a_reviewer_has_turned_around():
    study = Study(name="s", kind=StudyKind.KNOWLEDGE_CLOSED, source="")
    image = StudyImage(image_id="i", file="/i.png", sha256="0" * 64, text="")
    found = document(study, draft(1, "A", ("No", "Yes")), 0, image, None)
    assert (found["options"], found["answer"], found["gold"]) == (["Yes", "No"], "B", "No")


def known_drafts(number):
    asked = {"question": "Which?", "options": ("a", "b"), "answers": ("A", "B")}
    return {
        f"p{n}": Draft(item_id=f"p{n}", images=(f"i{2 * n}", f"i{2 * n + 1}"), **asked)
        for n in range(number)
    }


def images(number, group=lambda n: None):
    return {
        f"i{n}": StudyImage(image_id=f"i{n}", file="", sha256="", text="", group=group(n))
        for n in range(number)
    }


def review(name, known, judgements):
    """A reviewer who judged questions in their order, None for those that they did not."""
    pairs = zip(known.values(), judgements[::2], judgements[1::2], strict=True)
    items = {
        draft.item_id: empty_review(draft).model_copy(update={"judgements": two})
        for draft, *two in pairs
    }
    return Review(study="s", reviewer=name, items=items)


def scored_by(name, known, scores):
    return review(name, known, [Judgement(score=score) for score in scores])


def by_what(*reviews, known, seen=None):
    results = agreements(reviews, known, seen or images(2 * len(known)))
    return {result.what: result for result in results}


def test_kappa_of_scores_is_weighted_by_squares_of_their_distance_and_that_of_what_passes_is_the_textbooks():
    known = known_drafts(2)
    found = by_what(
        scored_by("anna", known, [1, 2, 9, 10]),
        scored_by("bert", known, [2, 2, 9, 8]),
        known=known,
    )["score"]
    # Observed squares are 1, 0, 0 and 4; by chance each score of one meets each of the other's.
    expected = sum((a - b) ** 2 for a in (1, 2, 9, 10) for b in (2, 2, 9, 8)) / 16
    assert found.kappa == pytest.approx(1 - 5 / 4 / expected)
    assert (found.questions, found.clusters, found.equal) == (4, 2, 0.5)
    assert found.low < found.kappa <= found.high <= 1
    known = known_drafts(25)
    said = [(7, 7)] * 20 + [(7, 3)] * 5 + [(3, 7)] * 10 + [(2, 2)] * 15
    first, second = zip(*said, strict=True)
    found = by_what(
        scored_by("anna", known, first), scored_by("bert", known, second), known=known
    )["score >= 5"]
    assert (found.kappa, found.equal) == pytest.approx((0.4, 0.7))


def test_reviewers_who_always_say_the_same_are_named():
    known = known_drafts(3)
    for scores, kappa, constant in (
        ([7] * 6, math.nan, ("anna", "bert")),
        ([1, 4, 7, 7, 9, 10], 0, ("anna",)),
        ([8] * 6, 0, ("anna", "bert")),
    ):
        result = by_what(
            scored_by("anna", known, [7] * 6), scored_by("bert", known, scores), known=known
        )["score"]
        assert result.kappa == pytest.approx(kappa, nan_ok=True)
        assert result.constant == constant


def test_only_questions_of_which_both_said_something_count_for_each_aspect():
    known = known_drafts(2)
    met, missed = Judgement(relevance=True), Judgement(relevance=False)
    anna = review("anna", known, [met, missed, Judgement(score=3), Judgement()])
    bert = review("bert", known, [met, Judgement(), Judgement(score=4), Judgement(score=9)])
    found = by_what(anna, bert, known=known)
    questions = {"score": 1, "score >= 5": 1, "correctness": 0, "relevance": 1, "language": 0}
    assert {what: one.questions for what, one in found.items()} == questions
    assert math.isnan(found["language"].equal)


def test_every_two_reviewers_are_compared_and_what_was_drafted_anew_is_not():
    known = known_drafts(3)
    three = [scored_by(name, known, [1, 5, 7, 9, 2, 8]) for name in ("anna", "bert", "cleo")]
    assert len({one.reviewers for one in agreements(three, known, images(6))}) == 3
    anew = {**known, "p0": known["p0"].model_copy(update={"question": "What?"})}
    assert by_what(*three[:2], known=anew)["score"].questions == 4
    assert agreements(three[:1], known, images(6)) == []
    assert by_what(*three[:2], known=known)["score"].clusters == 3
    one_patient = images(6, lambda number: "p" if number in (1, 2) else None)
    assert by_what(*three[:2], known=known, seen=one_patient)["score"].clusters == 2


def review_of(file, item, **changes):
    return file.review(item).model_copy(update=changes)


def save(file, item, **changes):
    file.save(item, review_of(file, item, **changes), file.review(item).version)


def test_what_is_saved_is_in_the_reviewers_own_file_whatever_came_first(tmp_path):
    study = pairs_study(tmp_path)
    for name, order in (("anna", ["p1", "p2", "p3"]), ("bert", ["p3", "p1", "p2"])):
        with open_reviewer_file(tmp_path, name) as file:
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
    with open_reviewer_file(tmp_path, "anna") as file:
        save(
            file,
            "p1",
            judgements=(Judgement(correctness=False), Judgement(score=8, relevance=False)),
        )
        assert file.review("p1").judgements == (
            Judgement(score=1, correctness=False),
            Judgement(score=8, correctness=True, relevance=False, language=True),
        )
        save(file, "p2", judgements=(Judgement(correctness=False), Judgement()), note="hm")
        assert (
            file.summary() == "anna: 1 of 3 drafts scored, 2 below 5"
        )  # as on the page: one is enough
        for item in ("p1", "p2"):
            file.save(item, empty_review(file.drafts[item]), file.review(item).version)
    assert read_reviews(tmp_path, study)[0].items == {}  # everything was taken back


@each_row(
    "changes, field, why",
    [
        ({"question": "  "}, "question", "the question is empty"),
        (
            {"options": ("In  the apex", "in the Apex")},
            "options.1",
            "option B says the same as option A",
        ),
        ({"answers": ("A", "C")}, "answers.1", "the answer is none of A, B"),
        (
            {"judgements": (Judgement(), Judgement(score=11))},
            "judgements.1.score",
            "the score is none of 1 to 10",
        ),
        (
            {"judgements": (Judgement(score=5, correctness=False), Judgement())},
            "judgements.0.score",
            "a question that is not correct has score 1; say first that it is correct",
        ),
        ({"hallucination": "anatomy"}, "hallucination", "questions of this study have no type"),
        (
            {"judgements": (Judgement(),)},
            "",
            "it does not have the options, images or categories of the draft",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_by_field(tmp_path, changes, field, why):
    pairs_study(tmp_path)
    with open_reviewer_file(tmp_path, "anna") as file:
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
        with open_reviewer_file(tmp_path / kind, "anna") as file:
            draft = file.drafts["im1/1"]
            assert problems(draft, review_of(file, "im1/1", **changes)) == why
    assert complete_review(
        draft, empty_review(draft).model_copy(update={"hallucination": "anatomy"})
    ) == empty_review(draft)


def test_only_one_process_works_on_a_reviewers_file(tmp_path):
    pairs_study(tmp_path)
    with open_reviewer_file(tmp_path, "anna"), open_reviewer_file(tmp_path, "bert"):
        pass
    with (
        held(tmp_path / "reviews" / ".anna.lock"),
        pytest.raises(MedTasksError, match="being reviewed by another process"),
        open_reviewer_file(tmp_path, "anna"),
    ):
        pass
    with open_reviewer_file(tmp_path, "anna") as file:
        pass
    with pytest.raises(MedTasksError, match="was ended"):
        save(file, "p1", note="too late")


def test_what_was_drafted_anew_is_not_judged_yet_and_the_old_word_is_kept_until_then(tmp_path):
    pairs_study(tmp_path)
    with open_reviewer_file(tmp_path, "anna") as file:
        save(file, "p1", note="old")
        save(file, "p2", note="stays")
    lines = (tmp_path / DRAFTS).read_text().splitlines()
    lines[0] = lines[0].replace("Where is", "Where exactly is")
    (tmp_path / DRAFTS).write_text("\n".join(lines) + "\n")
    with open_reviewer_file(tmp_path, "anna") as file:
        assert file.review("p1") == empty_review(file.drafts["p1"])
        save(file, "p2", note="stays here")
        assert json.loads(file.path.read_text())["items"]["p1"]["note"] == "old"
        save(file, "p1", note="new")
        assert json.loads(file.path.read_text())["items"]["p1"]["note"] == "new"


def test_a_score_out_of_range_in_a_reviewers_file_is_refused(tmp_path):
    study = pairs_study(tmp_path, 1)
    review = Review(study=study.digest, reviewer="x", items={"p": scored(PAIR, 11)})
    path = review_file(tmp_path, "x")
    path.parent.mkdir(exist_ok=True)
    path.write_text(review.model_dump_json())

    complaint = (
        "x.json: at 'judgements.0.score' of 'p' the score is none of 1 to 10; fix it there"
    )
    with pytest.raises(MedTasksError, match=complaint):
        read_reviews(tmp_path, study)
