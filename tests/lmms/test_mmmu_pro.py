"""MMMU-Pro's Health & Medicine: from published files to its overall score, and the authors' own recorded replies."""

import gzip
import json
import math
from collections import Counter

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.samples import Sample
from medtasks.data.variants import rotated
from medtasks.errors import SourceError
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families.family import Reply
from medtasks.prompts.template import target
from medtasks.scores.scoring import score_replies
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import resolve_names

from ..damages import lost
from ..damages import row as changed_row
from ..tables import each_row
from . import tiny_mmmu_pro
from .whole_runs import answering, evaluate, values

STANDARD, VISION = "mmmu_pro_med_standard_10", "mmmu_pro_med_vision"
TASKS = [
    name
    for name, task in task_files().items()
    if name.startswith("mmmu_pro_med") and task.kind == "task"
]
FILE = "standard (10 options)/test-00000-of-00002.parquet"


def test_documents(prepared):
    for name in tiny_mmmu_pro.SETS:
        documents = load_documents(name)
        assert [document["doc_id"].rpartition("_")[2] for document in documents] == [
            "0",
            "1",
            "2",
            "4",
            "5",
            "6",
        ]
        assert {document["subject"] for document in documents} == set(tiny_mmmu_pro.SUBJECTS)
        assert [document["answer"] for document in documents] == list("BADADB")
        assert [len(document["options"]) for document in documents] == [
            3,
            *[4 if name.endswith("_4") else 10] * 5,
        ]
        assert [len(document["image_files"]) for document in documents] == [
            1 if name == VISION else 3,
            *[1] * 5,
        ]
        assert {bool(document["question"]) for document in documents} == {name != VISION}


@each_row(
    ("damage", "sentence"),
    [
        (lost("standard (10 options)"), r"holds no standard \(10 options\)/test-\*\.parquet"),
        (lost(FILE), "part 00000 of 00002 is missing"),
        (
            changed_row(FILE, 2, answer="K"),
            "row 2: answer is none of A, B, C, D, E, F, G, H, I, J",
        ),
        (
            changed_row(FILE, 1, image_2=None),
            "row 1: its text names <image 3> and it holds fewer images",
        ),
    ],
)
def test_a_source_with_a_fault(tmp_path, damage, sentence):
    source = tiny_mmmu_pro.put_source(tmp_path / "source")
    damage(source)
    with pytest.raises(SourceError, match=sentence):
        prepare(STANDARD, Options(source))


def asked(name, document, family="default"):
    """Return a chat prompt with ``IMAGE`` for each image, the images' colours, and the prompt of a simple model."""
    config = resolve_names(task_config(name))
    settings = config["lmms_eval_specific_kwargs"][family]
    (turn,) = config["doc_to_messages"](document, settings)
    text = "|".join(
        part["text"] if part["type"] == "text" else "IMAGE" for part in turn["content"]
    )
    images = [
        part["url"].getpixel((0, 0)) for part in turn["content"] if part["type"] == "image"
    ]
    shown = [image.getpixel((0, 0)) for image in config["doc_to_visual"](document, settings)]
    assert shown == images
    return text, images, config["doc_to_text"](document, settings)


TOLD = "The last line of your response should be of the following format: 'Answer: $LETTER' (without quotes) where "


def test_a_prompt_shows_images_as_options(prepared):
    question = load_documents(STANDARD)[0]

    text, images, simple = asked(STANDARD, question)

    assert simple == (
        "Which image?\nA. <image>\nB. <image>\nC. <image>\n"
        "Answer with the option letter from the given choices directly."
    )
    assert text == f"{simple}|IMAGE|IMAGE|IMAGE"
    # The first image is drawn like the screenshot.
    assert images[2:] == asked(VISION, load_documents(VISION)[0])[1]
    assert len(set(images)) == 3


def test_images_turn_with_their_options(prepared):
    question = load_documents(STANDARD)[0]
    _, images, _ = asked(STANDARD, question)
    shown = dict(zip(question["options"], images, strict=True))
    for turned in rotated([question]):
        assert asked(STANDARD, turned)[1] == [shown[option] for option in turned["options"]]


def test_images_stand_in_the_text_for_models_that_take_them_there(prepared):
    question = load_documents(STANDARD)[0]
    _, images, simple = asked(STANDARD, question)

    interleaved, same, marked = asked(STANDARD, question, "llava_hf")

    assert (same, marked) == (images, simple)
    assert interleaved.startswith("Which image?\nA. |IMAGE|\nB. |IMAGE|\nC. |IMAGE|\nAnswer")


def test_the_prompt_for_reasoning_is_the_authors(prepared):
    plain = load_documents(STANDARD)[1]
    assert asked(f"{STANDARD}_cot", plain)[2] == (
        "What is 1 in <image>?\n"
        + "".join(f"{letter}. {letter.lower()} it's\n" for letter in "ABCDEFGHIJ")
        + "Answer the preceding multiple choice question. The last line of your response should be of the following "
        "format: 'Answer: $LETTER' (without quotes) where LETTER is one of options. "
        "Think step by step before answering."
    )


def test_the_prompts_on_a_screenshot_are_the_authors(prepared):
    direct, reasoned = (
        asked(name, load_documents(VISION)[0])[0] for name in (VISION, f"{VISION}_cot")
    )
    assert direct == (
        f"Answer with the option letter from the given choices directly. {TOLD}LETTER is one of options.|IMAGE"
    )
    assert reasoned == (
        f"Write out the multiple-choice question in the image and then solve it. {TOLD}LETTER is one of options. "
        "Think step by step before answering.|IMAGE"
    )


def test_the_overall_score_is_the_mean_of_two_settings(prepared):
    def say(document):
        if document["dataset"] == VISION:
            return "no idea"
        return f"I see.\nAnswer: {target(document)}"

    found = evaluate(["mmmu_pro_med"], answering(say))

    for name in TASKS:
        scores = values(found, name)
        read = VISION not in name
        assert scores["accuracy", "robust"] == float(read)
        assert scores["fallback_rate", "reference"] == float(not read)
        assert (
            scores["accuracy", "reference"] == 1.0
            if read
            else scores["accuracy", "reference"] < 1
        )

    for ending in ("", "_cot"):
        overall = found["results"][f"mmmu_pro_med_overall{ending}"]
        assert overall["accuracy,robust"] == 0.5
        assert (
            overall["accuracy,reference"]
            == (1 + values(found, f"{VISION}{ending}")["accuracy", "reference"]) / 2
        )
        assert math.isnan(overall["accuracy_stderr,robust"])


def check_reading(file, row, document):
    """Check that a recorded reply is read as the authors read it."""
    answer = extractor_of("mmmu_pro").extract(row["reply"], Sample(document))
    assert answer.value == row["authors_answer"], (file.name, row["id"])
    assert answer.facts.get("draws") == (None if row["authors_answer"] else len(row["options"]))


def test_golden_mmmu_pro_authors_answers(test_data):
    files = sorted((test_data / "real_replies" / "mmmu_pro").glob("*.jsonl.gz"))
    if not files:
        pytest.skip(f"no recorded replies in {test_data}")
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        documents, replies, right, drawn = [], {}, Counter(), Counter()

        for row in rows:
            subject = row["id"].partition("_")[2].rpartition("_")[0]
            key = {"options": row["options"], "answer": row["gold"]}
            documents.append({"doc_id": row["id"], "image_id": None, "subject": subject, **key})
            # The authors read the object of a failed request as an empty reply.
            replies[row["id"]] = Reply.of_text(row["reply"] or "")
            check_reading(file, row, documents[-1])
            right[subject] += row["authors_answer"] == row["gold"]
            drawn[subject] += row["authors_answer"] is None

        rules = score_replies(task_file(STANDARD), documents, replies)
        groups = {group.name: group for group in rules["reference"].groups["subject"]}
        assert groups.keys() == right.keys()
        for subject, group in groups.items():
            counted = round(group.scores[0].value * group.questions)
            assert right[subject] <= counted <= right[subject] + drawn[subject], (
                file.name,
                subject,
            )
