"""``medtasks curate publish``: what is published, said and refused."""

import json
import os
import re
import shutil

import pytest

from medtasks.curate.drafts import read_drafts
from medtasks.curate.study import IMAGES, StudyKind, read_images, read_study, write_lines
from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import preparing_again
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.privacy import access_of
from medtasks.errors import JudgeRefused
from medtasks.home import dataset_folder, own_tasks_folder
from medtasks.judges.judge_client import judge_for
from medtasks.tasks.task_files import task_config, task_file, tasks_of
from medtasks.tasks.task_index import SETTINGS

from ..curate.reviewed_study import MADE_WITH, detailed_study, even, review, scored
from .conftest import rows_of


@pytest.fixture
def study(tmp_path):
    review(detailed_study(tmp_path / "study"))
    return tmp_path / "study"


@pytest.fixture
def publish(medtasks, study):
    def run(*options):
        ran = medtasks("curate", "publish", study, *options)
        assert ran.code == 0, ran.err
        return ran.out

    return run


def fingerprint():
    return Manifest.read(dataset_folder("made_up")).fingerprint


def counts(out):
    """Return the numbers of drafts by what became of them, as printed."""
    table = out[out.index("drafts  ") :].split("\n", 1)[1]
    return {
        name: int(number)
        for name, number in re.findall(r"^(\w.*?)  +(\d+)$", table, re.MULTILINE)
    }


def low(item, score=4):
    return lambda draft: score if draft.item_id == item else 8


def test_what_is_published_is_its_owners_alone(medtasks, tmp_path):
    review(detailed_study(tmp_path / "private", access=Access.CREDENTIALED))
    before = os.umask(0)
    try:
        assert medtasks("curate", "publish", tmp_path / "private").code == 0
    finally:
        os.umask(before)
    for folder in (dataset_folder("made_up"), own_tasks_folder()):
        assert {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))} == {0}


@pytest.fixture
def partly_scored(study):
    """Of the study, one pair is scored too low by a second reviewer."""
    review(study, "bob", low("p2"))


def test_pairs_that_reach_the_score_are_published(partly_scored, publish):
    out = publish()

    assert "Prepared made_up: 4 questions, 4 images" in out
    assert counts(out) == {"published": 2, "scored too low": 1}
    assert "Right answers: A 2, B 2" in out
    assert "Run it with 'lmms_eval --tasks made_up_all'" in out
    assert [one["doc_id"] for one in load_documents("made_up")] == [
        "p1/1",
        "p1/2",
        "p3/1",
        "p3/2",
    ]


def test_a_lower_score_publishes_more_pairs(partly_scored, publish):
    publish()
    assert counts(publish("--min-score", 4)) == {"published": 3}


def test_a_published_document_says_where_it_comes_from(partly_scored, publish, study):
    publish()

    document = load_documents("made_up")[1]
    assert document == {
        "doc_id": "p1/2",
        "dataset": "made_up",
        "pair_id": "p1",
        "position": 2,
        "image_id": "im2",
        "image_file": document["image_file"],
        "image_sha256": read_images(study)["im2"].sha256,
        "question": "Where is the opacity of size 1?",
        "options": ["In the left lower lobe", "In the right upper lobe"],
        "answer": "B",
        "categories": ["pulmonary", "vascular"],
        "licence": "CC0",
        "sim_med": 0.95,
        "sim_gen": 0.5,
    }


def test_a_published_dataset_is_complete(partly_scored, publish, study):
    publish()

    manifest = Manifest.read(dataset_folder("made_up"))
    assert manifest.image_rule == "linear"  # as reviewers and encoders saw the images
    assert (manifest.complete, manifest.left_out, manifest.access) == (True, (), "public")
    assert manifest.revision == read_study(study).digest


ENDINGS = ("", "_gd", "_ps", "_ff")


def test_a_study_has_the_groups_of_the_paper(publish):
    publish()

    assert tasks_of("made_up_all") == ["made_up", "made_up_gd", "made_up_ps"]
    assert tasks_of("made_up_all_ff") == ["made_up", "made_up_gd", "made_up_ps", "made_up_ff"]
    ours, theirs = task_config("made_up_all"), task_config("mediconfusion_all")
    assert ours["aggregate_metric_list"] == theirs["aggregate_metric_list"]


def test_tasks_of_a_study_run_like_those_of_the_paper(publish):
    publish()

    for ending in ENDINGS:
        own, model = task_config(f"made_up{ending}"), task_config(f"mediconfusion{ending}")
        differ = {key for key in own.keys() | model.keys() if own.get(key) != model.get(key)}
        assert differ == {"task", "task_alias", "dataset_path", "metadata", "tag", SETTINGS}
        assert own[SETTINGS] == {
            name: one for name, one in model[SETTINGS].items() if name != "med_flamingo"
        }
        assert (
            task_file(f"made_up{ending}").variants
            == task_file(f"mediconfusion{ending}").variants
        )


def test_tasks_of_a_study_claim_nothing_of_the_paper(publish):
    publish()

    for ending in ENDINGS:
        own = task_config(f"made_up{ending}")["metadata"]
        model = task_config(f"mediconfusion{ending}")["metadata"]
        assert own.keys() == model.keys() - {"checked_against"}
        assert own["dataset"] == "made_up"
        assert "paper" not in own["description"]
        assert "include" not in (own_tasks_folder() / f"made_up{ending}.yaml").read_text()


def edited(draft):
    return scored(
        draft,
        9,
        question="Which side?",
        answers=("B", "A"),
        categories=(("Spinal",), ("Spinal",)),
    )


def edited_by_bob(draft):
    return scored(draft, 9, question="Where?") if draft.item_id == "p1" else edited(draft)


def test_the_words_after_review_are_published(publish, study):
    review(study, said=edited)

    publish()

    first = load_documents("made_up")[0]
    assert (first["question"], first["answer"], first["categories"]) == (
        "Which side?",
        "B",
        ["Spinal"],
    )


def test_publishing_again_changes_nothing(publish, study):
    review(study, said=edited)
    publish()
    before = fingerprint()

    publish()

    assert fingerprint() == before


def test_of_two_wordings_the_user_chooses_one(publish, study):
    review(study, said=edited)
    publish()
    before = fingerprint()
    review(study, "bob", edited_by_bob)

    hint = "choose one with --wording REVIEWER"
    assert hint in publish()
    assert hint not in publish("--wording", "bob")

    assert load_documents("made_up")[0]["question"] == "Where?"
    assert fingerprint() != before


def test_one_reviewer_has_no_agreement(study, medtasks):
    status = medtasks("curate", "review", study, "--status").out
    assert "There are fewer than two reviewers" in status


def test_the_status_says_how_reviewers_agree(partly_scored, study, medtasks):
    both = medtasks("curate", "review", study, "--status").out

    shown = rows_of(both)
    assert shown["score"] == ["6", "0%", "0.00", "undefined"]
    assert shown["score >= 5"] == ["6", "67%", "0.00", "undefined"]
    assert shown["relevance"] == ["0", "-", "nothing in common", "-"]
    assert "score: alice said the same of every question, so kappa is 0." in both


@pytest.fixture
def sheet(partly_scored, publish):
    """The datasheet of the published study."""
    publish()
    return json.loads((dataset_folder("made_up") / "datasheet.json").read_text())


@pytest.fixture
def page(sheet):
    return (dataset_folder("made_up") / "datasheet.md").read_text()


def test_the_datasheet_lies_next_to_the_study_and_the_dataset(sheet, page, study):
    assert sheet == json.loads((study / "datasheet.json").read_text())
    assert page == (study / "datasheet.md").read_text()
    assert sheet["fingerprint"] == fingerprint()


def test_the_datasheet_counts_drafts(sheet, page):
    assert (sheet["drafts"], sheet["published"], sheet["left_out"]) == (
        3,
        2,
        {"scored too low": 1},
    )
    assert "| scored too low | 1 |" in page


def test_the_datasheet_says_what_made_the_study(sheet, page):
    assert sheet["made_with"] == MADE_WITH
    assert (sheet["llm"], sheet["prompts"]) == (["made-up-llm, temperature 0"], ["made_up v1"])
    drafted = {"outcome": "drafted", "reason": "", "number": 3}
    assert sheet["requests"] == [{"of": of, **drafted} for of in ("pairs", "questions")]
    assert sheet["licences"] == {"CC0": 2, "not stated": 2}
    assert "| medical_encoder: digest | aaaaaaaaaaaaaaaa |" in page


def test_the_datasheet_says_how_reviewers_agree(sheet):
    assert sheet["reviewers"][1] == {
        "reviewer": "bob",
        "drafts_scored": 3,
        "mean_score": pytest.approx(40 / 6),
        "share_reaching_the_score": pytest.approx(2 / 3),
        "share_published": pytest.approx(2 / 3),
    }
    assert {one["what"] for one in sheet["agreement"]} >= {"score", "correctness"}


def test_the_datasheet_says_nothing_of_a_question(sheet, page, study):
    for draft in read_drafts(study).values():
        assert draft.question not in page + json.dumps(sheet)
        assert draft.item_id not in page + json.dumps(sheet)


def test_pairs_of_one_patient_are_one_independent_group(publish, study):
    images = read_images(study).values()
    write_lines(
        study / IMAGES,
        [one.model_copy(update={"group": one.group.replace("4", "1")}) for one in images],
    )

    assert "The 3 pairs make 2 independent groups: " in publish("--min-score", 4)

    assert "The 3 pairs make 2 independent groups: " in (study / "datasheet.md").read_text()


@pytest.fixture
def publish_kind(medtasks, tmp_path):
    """Publish a hallucination study of a kind; return the first two documents."""

    def run(kind):
        review(detailed_study(tmp_path / "h", kind), said=even)
        assert medtasks("curate", "publish", tmp_path / "h").code == 0
        return load_documents("made_up")[:2]

    return run


@pytest.mark.parametrize("kind", [kind for kind in StudyKind if kind is not StudyKind.PAIRS])
def test_hallucination_studies_name_image_and_patient(publish_kind, kind):
    first, _ = publish_kind(kind)
    assert (first["doc_id"], first["patient_id"], first["image_id"]) == (
        "im1/1",
        "patient1",
        "im1",
    )


def test_open_questions_on_images_have_the_report(publish_kind):
    first, _ = publish_kind(StudyKind.VISUAL_OPEN)
    assert first["report"].startswith("Radiograph 1")
    assert (first["anatomy"], first["measurement"]) == (["left lower lobe"], [])


def test_open_questions_on_knowledge_have_a_text_as_answer(publish_kind):
    _, second = publish_kind(StudyKind.KNOWLEDGE_OPEN)
    assert second["answer"] == "A follow-up of the left lower lobe."


@pytest.mark.parametrize(
    "kind", [kind for kind in StudyKind if kind is not StudyKind.PAIRS and "open" not in kind]
)
def test_closed_questions_are_binary_or_multiple_choice(publish_kind, kind):
    first, second = publish_kind(kind)

    binary = {
        "kind": "binary",
        "choices": "",
        "options": ["Yes", "No"],
        "answer": "A",
        "gold": "Yes",
    }
    assert {name: first[name] for name in binary} == binary
    assert second["choices"] == "A. left lower lobe, B. nowhere, C. everywhere, D. the heart"
    assert (second["kind"], second["answer"], second["gold"]) == (
        "multi-choice",
        "A",
        "left lower lobe",
    )
    assert first["hallucination"] == ("anatomy" if kind is StudyKind.VISUAL_CLOSED else None)
    assert first["source"] == "made_up"


def test_nothing_to_publish(fails, study):
    review(study, said=lambda draft: None)
    fails(
        ["curate", "publish", study],
        "none of the 3 drafts of 'made_up' has been scored",
        "medtasks curate review",
    )

    review(study, said=lambda draft: 2)
    fails(
        ["curate", "publish", study],
        "nothing of 'made_up' reaches 5",
        "3 scored too low",
        "lower --min-score",
    )

    (study / "drafts.jsonl").unlink()
    fails(["curate", "publish", study], "none of the 0 drafts", "medtasks curate draft")
    fails(["curate", "publish", study / "drawn"], "holds no study")

    assert not own_tasks_folder().exists()
    assert not dataset_folder("made_up").exists()


def test_a_changed_image_is_not_published(fails, study):
    shutil.copy(study / "drawn" / "im1.png", study / "drawn" / "im4.png")
    why = "the image in line 4 of images.jsonl cannot be used: its file has changed since the study was made"

    fails(["curate", "publish", study], why, "--allow-incomplete")

    assert not dataset_folder("made_up").exists()


def test_a_missing_image_may_be_left_out(medtasks, study):
    (study / "drawn" / "im4.png").unlink()

    ran = medtasks("curate", "publish", study, "--allow-incomplete")

    assert (
        "left out: the image in line 4 of images.jsonl cannot be used: its file cannot be read"
        in ran.out
    )
    manifest = Manifest.read(dataset_folder("made_up"))
    assert (manifest.complete, manifest.rows) == (False, 4)
    assert counts(ran.out) == {"published": 2, "an image is missing, changed or broken": 1}
    assert "Right answers: A 2, B 2" in ran.out


def test_a_published_study_is_prepared_again_by_its_command(fails, publish, study):
    publish()

    again = f"medtasks curate publish {study} --min-score 5 --as made_up"
    assert preparing_again("made_up") == again
    fails(["data", "prepare", "made_up"], "was published from a study", again)


def test_the_command_of_a_damaged_manifest_names_no_study(publish):
    publish()
    (dataset_folder("made_up") / "manifest.json").write_text("{")

    assert (
        preparing_again("made_up") == "medtasks curate publish STUDY --min-score 5 --as made_up"
    )
    publish()


def test_a_part_of_a_published_study_is_selected(medtasks, publish):
    publish()
    select = ["data", "select", "made_up", "--where", "categories=vascular", "--as", "hearts"]

    assert medtasks(*select).code == 0

    assert len(load_documents("hearts")) == 6
    assert preparing_again("hearts") == "medtasks data select made_up ... --as hearts"


def test_a_published_study_is_scored(medtasks, publish, tmp_path):
    publish()
    replies, scores = tmp_path / "right.jsonl", tmp_path / "scores.json"
    lines = [
        {"doc_id": row["doc_id"], "reply": row["answer"]} for row in load_documents("made_up")
    ]
    replies.write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert medtasks("score", "made_up", replies, "--json", scores).code == 0

    total = json.loads(scores.read_text())["rules"]["robust"]["categories"]["total"]
    assert total["set_accuracy"] == 1


def test_access_travels_with_the_study(medtasks, tmp_path, monkeypatch):
    for name, value in {
        "BASE_URL": "https://judge.example/v1",
        "MODEL": "m",
        "API_KEY": "none",
    }.items():
        monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
    for access in Access:
        folder = tmp_path / access
        review(detailed_study(folder, name=f"study_{access}", access=access))
        out = medtasks("curate", "publish", folder).out
        assert ("may not see it" in out) == (access is Access.CREDENTIALED)
        assert access_of(f"study_{access}") is access
    with pytest.raises(JudgeRefused, match="'study_credentialed' is credentialed"):
        judge_for("study_credentialed")
    assert judge_for("study_gated").settings.model == "m"


def test_a_visual_mark_that_a_reviewer_names_as_a_category_is_scored_apart(
    publish, medtasks, study, tmp_path
):

    def marked(draft):
        areas = (("pulmonary",), ("pulmonary", "arrow"))
        return scored(draft, 9, categories=areas if draft.item_id == "p1" else draft.categories)

    review(study, "alice", marked)
    publish()

    replies, scores = tmp_path / "replies.jsonl", tmp_path / "scores.json"
    replies.write_text(
        "".join(
            f'{{"doc_id": "{one["doc_id"]}", "reply": "B"}}\n'
            for one in load_documents("made_up")
        )
    )

    assert medtasks("score", "made_up", replies, "--json", scores).code == 0
    areas = json.loads(scores.read_text())["rules"]["robust"]["categories"]
    assert (areas["arrow"]["images"], areas["arrow"]["individual_accuracy"]) == (1, 1)
    assert (areas["total"]["images"], areas["total"]["individual_accuracy"]) == (6, 0.5)
