"""Stress variants over published questions with scripted replies; degraded pixels against a second implementation."""

import io
import json
import math
from collections import Counter

import cv2
import numpy as np
import pytest
from loguru import logger
from PIL import Image
from scipy.ndimage import gaussian_filter

from medtasks.data.images.degrading import SEVERITIES, STRENGTHS, degrade
from medtasks.data.samples import Sample
from medtasks.data.sources.medevalkit import kit_choice, letter_options
from medtasks.data.variants import (
    CANNOT_TELL,
    NONE_OF_THEM,
    abstain,
    degraded,
    nota,
    rotated,
    told,
)
from medtasks.errors import MedTasksError
from medtasks.families.family import Reply
from medtasks.hooks.volumes import volumes
from medtasks.metrics.metric import evaluate
from medtasks.prompts.images import images
from medtasks.prompts.template import NO_IMAGE
from medtasks.tasks.documents import variant_hook
from medtasks.tasks.task_files import include, task_config, task_file
from medtasks.tasks.task_index import SETTINGS, resolve_names

from ..tables import each_row

KIT, PAIRS, CLASSES, LETTERS = (
    "medevalkit_medxpertqa_mm",
    "mediconfusion",
    "multimedeval_octmnist",
    "ABCDEFGHIJK",
)


@pytest.fixture(scope="module")
def questions(recorded_data):
    """MedXpertQA's questions with images, which repeat their options, as this package prepares them."""
    documents = []
    for line in (
        (recorded_data / "medxpertqa" / "medxpertqa_mm_input.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        row = json.loads(line)
        options, files = (
            [option["content"] for option in row["options"]],
            [image["image_path"] for image in row["images"]],
        )
        document = kit_choice(
            row["id"],
            options,
            letter_options(options),
            row["label"][0],
            question=row["question"],
        )
        documents.append(
            {**document, "dataset": KIT, "image_files": files, "image_sha256": files}
        )
    return documents


@pytest.fixture(scope="module")
def pairs(test_data):
    """MediConfusion's questions, two to a pair."""
    records = json.loads(
        (test_data / "mediconfusion" / "dataset.json").read_text(encoding="utf-8")
    )
    folder, common, documents = (
        test_data / "mediconfusion" / "images",
        {"dataset": PAIRS, "categories": []},
        [],
    )
    for number, record in records.items():
        shown = {
            **common,
            "pair_id": number,
            "options": [record["option_A"], record["option_B"]],
        }
        for place in (1, 2):
            of_image = {
                "image_id": record[f"im_{place}"],
                "image_file": f"{folder}/{record[f'im_{place}_local']}.jpg",
            }
            asked = {
                "doc_id": f"{number}/{place}",
                "position": place,
                "question": record["question"],
            }
            documents.append(
                {**shown, **of_image, **asked, "answer": record[f"im_{place}_correct"]}
            )
    return documents


def values(name, documents, reply):
    """Return the metrics of scripted replies by row."""
    task, rows = task_file(name), {}
    for title, row in task.rows.items():
        scores = [
            task.family.score(Sample(document), Reply(reply(document)), row)
            for document in documents
        ]
        rows[title] = {
            key: part.value
            for key, part in evaluate(task.metrics, task.family.final_scores(scores)).items()
        }
    return rows


def prompts_of(name):
    keys = ("doc_to_text", "doc_to_visual", "doc_to_messages", SETTINGS)
    return resolve_names(
        {key: value for key, value in task_config(name).items() if key in keys}
    )


def letter_of(document, text):
    return LETTERS[document["options"].index(text)]


@each_row("control, wanted", [(False, 1), (True, 0)])
def test_a_model_that_always_says_none_of_the_others(questions, control, wanted):
    asked, name = nota(questions[::20], control=control), f"{KIT}_nota{'_control' * control}"
    for form in ("{}. " + NONE_OF_THEM, "The answer is {}."):
        rows = values(
            name,
            asked,
            lambda document, form=form: form.format(letter_of(document, NONE_OF_THEM)),
        )
        assert {title: row["accuracy"] for title, row in rows.items()} == dict.fromkeys(
            task_file(KIT).rows, wanted
        )


def test_one_option_is_replaced_wherever_the_prompt_shows_it(questions):
    lines = []
    logger.add(lines.append, level="INFO")
    by_id, config = {document["doc_id"]: document for document in questions}, prompts_of(KIT)
    for control in (False, True):
        asked = nota(questions, control=control)
        for new in asked:
            old, text = (
                by_id[new["doc_id"]],
                config["doc_to_text"](new, config[SETTINGS]["default"]),
            )
            place = letter_of(new, NONE_OF_THEM)
            assert (place != old["answer"], new["answer"], new["gold"]) == (
                control,
                old["answer"],
                old["gold"],
            )
            for form in (f"({place}) {{}}", f"\n{place}. {{}}\n"):
                assert form.format(NONE_OF_THEM) in text
                assert form.format(old["options"][LETTERS.index(place)]) not in text
        assert (
            len(asked) == len(questions) - 16
        )  # such as "None are correct", "Neither", "All of the above", "A and D"
        assert nota(questions, control=control) == asked
    assert f"16 of 2,000 questions of {KIT} cannot be asked with" in lines[0]


def test_published_options_that_refer_to_each_other_are_not_rotated(questions, pairs):
    asked = {document["rotation_of"] for document in rotated(questions)}
    left_out = [
        document["options"] for document in questions if document["doc_id"] not in asked
    ]
    assert len(left_out) == 13  # such as these
    for text in (
        "None of the above",
        "All of the above are detrimental",
        "A and D",
        "Both B and C",
        "None are correct",
    ):
        assert any(text in options for options in left_out), text
    assert len(rotated(pairs)) == 2 * len(pairs)


def test_a_text_as_gold_lines_of_null_options_and_lines_without_letters():
    plain = {
        "doc_id": "1",
        "dataset": "x",
        "question": "Which organ?",
        "options": ["Liver", "Spleen"],
        "answer": "B",
    }
    document = {**plain, "option_lines": ["A: Liver", "B: Spleen", "C: None"], "gold": "Spleen"}
    (changed,), (added,) = nota([document]), abstain([document])
    assert (changed["option_lines"][1:], changed["gold"]) == (
        [f"B: {NONE_OF_THEM}", "C: None"],
        NONE_OF_THEM,
    )
    assert added["option_lines"] == ["A: Liver", "B: Spleen", f"C: {CANNOT_TELL}"]
    assert abstain([{**document, "option_lines": ["Liver", "Spleen"]}])[0]["option_lines"][
        2:
    ] == [CANNOT_TELL]
    unusable = ["Spleen", "Spleen"], ["Liver", "Neither"], ["Liver"], ["Both A and B", "Liver"]
    for change, lists in ((nota, unusable), (abstain, [["It cannot be determined", "Spleen"]])):
        for options in lists:
            with pytest.raises(
                MedTasksError, match="no question has options, one right answer, and none like"
            ):
                change([{**plain, "options": options}])


def said(document, turn):
    """Answer rightly, wrongly, not at all or unreadably: by letter, or the name of a class."""
    right = document["label"] if "label" in document else LETTERS.index(document["answer"])
    last = len(document["options"]) - 1
    index = (right, (right + 1) % last, last, 0)[turn]
    return (
        "mumble"
        if turn == 3
        else document["options"][index]
        if "label" in document
        else LETTERS[index]
    )


def test_models_that_abstain(questions, pairs):
    scans = [
        {"doc_id": f"{at}", "options": ["drusen", "normal"], "label": at % 2} for at in range(8)
    ]
    cases = (
        (KIT, "accuracy", questions[::20]),
        (PAIRS, "individual_accuracy", pairs),
        (CLASSES, "", scans),
    )
    for base, main, documents in cases:
        rows = values(f"{base}_abstain", abstain(documents), lambda document: said(document, 2))
        assert rows["robust"]["invalid_rate"] == 0  # MediConfusion's own code knows two letters
        for row in rows.values():
            assert (row["coverage"], row.get(main, 0), math.isnan(row["acc_of_answered"])) == (
                0,
                0,
                True,
            )
        turns = [at // 2 % 4 for at, _ in enumerate(documents)]  # both images of a pair alike
        replies = iter(turns * len(rows))
        rows = values(
            f"{base}_abstain",
            abstain(documents),
            lambda one, replies=replies: said(one, next(replies)),
        )
        row = rows["robust"]
        right, wrong, _, invalid = (turns.count(turn) / len(turns) for turn in range(4))
        measured = [row[key] for key in ("coverage", "acc_of_answered", "invalid_rate")]
        assert measured == pytest.approx([right + wrong, right / (right + wrong), invalid])
        assert row.get(main, 0) == pytest.approx(right if main else 0)


def test_prompts_that_say_that_the_image_is_missing(questions, pairs, tmp_path):
    for name, document in (
        (KIT, questions[0]),
        (PAIRS, pairs[0]),
        ("mediconfusion_gd", pairs[0]),
    ):
        (asked,), config = told([document]), prompts_of(f"{name}_told")
        for family, settings in config[SETTINGS].items():
            text, blind = (
                config["doc_to_text"](one, settings)
                for one in (asked, {**asked, "variant": "blind"})
            )
            assert text.replace(f"{NO_IMAGE}\n", "", 1) == blind != text
            assert (
                text.startswith(NO_IMAGE) or family == "med_flamingo"
            )  # whose examples, with images, come first
            assert (
                "demonstrations" in settings or config["doc_to_visual"](asked, settings) == []
            )
        if messages := config.get("doc_to_messages"):
            ((part,),) = (turn["content"] for turn in messages(asked, settings))
            assert part["text"].startswith(NO_IMAGE)
    (tmp_path / "beside_told.py").write_text(
        "def prompt(doc, settings=None):\n    return doc['question']\n"
    )
    hooks = "doc_to_visual: !function medtasks.hooks.images.images\ndoc_to_text: !function beside_told.prompt\n"
    (tmp_path / "own.yaml").write_text(
        f"task: own_told_task\ndataset_path: json\noutput_type: generate_until\n{hooks}"
    )
    include([tmp_path])
    assert (
        variant_hook("text_of_own_told_task_told")({"question": "Why?"}, {})
        == f"{NO_IMAGE}\nWhy?"
    )


def test_draws_are_balanced_and_the_same_for_one_image(questions, pairs):
    drawn = Counter(
        (document["degradation"], document["severity"]) for document in degraded(questions)
    )
    assert len(drawn) == len(STRENGTHS) * len(SEVERITIES)
    assert max(drawn.values()) - min(drawn.values()) <= 1  # no two questions share an image
    looks = {document["doc_id"]: document for document in degraded(pairs)}
    for key in ("pair_id", "image_file"):
        together = {
            (document[key], document["degradation"], document["severity"])
            for document in looks.values()
        }
        assert len(together) == len({document[key] for document in pairs})
    assert {document["doc_id"]: document for document in degraded(pairs[::-1])} == looks
    assert (
        degraded([{**questions[0], "image_files": [], "image_sha256": []}])[0]["degradation"]
        is None
    )


def expected(pixels, kind, strength, seed):
    """Return what a kind makes of pixels, shape (height, width) or (height, width, 3), written a second time."""
    levels, channels = pixels.astype(float), pixels.ndim - 2
    if kind == "jpeg":
        stream = io.BytesIO()
        Image.fromarray(pixels).save(
            stream, format="jpeg", quality=int(strength), subsampling="4:2:0"
        )
        read = cv2.imdecode(np.frombuffer(stream.getvalue(), np.uint8), channels)
        return read[:, :, ::-1] if channels else read
    if kind == "blur":
        sigma = strength * min(pixels.shape[:2])
        return gaussian_filter(
            levels, [sigma, sigma] + [0] * channels, mode="nearest", truncate=6
        )
    if kind == "noise":
        noise = np.rint(
            np.random.default_rng(seed).standard_normal(pixels.shape[:2]) * strength
        )
        return np.clip(levels + (noise[..., None] if channels else noise), 0, 255)
    if kind == "gamma":
        return np.rint(np.power(levels / 255, strength) * 255)
    return (
        np.clip(levels + strength, 0, 255)
        if kind == "brightness"
        else np.floor((levels - 128) * strength / 100) + 128
    )


@each_row("kind", list(STRENGTHS))
def test_pixels_of_each_kind_and_severity(pairs, kind):
    source = Image.open(pairs[0]["image_file"]).convert("RGB").resize((240, 180))
    most, average = {"jpeg": (3, 0.2), "blur": (12, 1.5)}.get(
        kind, (0, 0)
    )  # another decoder; three boxes for a Gaussian
    for image in (
        source,
        source.convert("L"),
        Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)),
    ):
        pixels = np.asarray(image)
        assert np.array_equal(degrade(image, kind, 0, 7), pixels)
        for severity in SEVERITIES:
            made, again = (
                degrade(image, kind, severity, 7),
                degrade(image.copy(), kind, severity, 7),
            )
            assert (made.mode, made.size, made.tobytes()) == (
                image.mode,
                image.size,
                again.tobytes(),
            )
            distance = np.abs(
                np.asarray(made).astype(float)
                - expected(pixels, kind, STRENGTHS[kind][severity - 1], 7)
            )
            assert (distance.max() <= most, distance.mean() <= average) == (True, True)
    plain, document = (
        {**pairs[0], "dataset": None},
        {"variant": "degraded", "degradation": kind, "severity": 2},
    )
    (before,), (first,), (second,) = (
        images(plain),
        images({**plain, **document}),
        images({**plain, **document}),
    )
    assert (
        (first.mode, first.tobytes()) == ("RGB", second.tobytes()) != ("RGB", before.tobytes())
    )
    with pytest.raises(MedTasksError, match="files of volumes cannot be degraded; set slices"):
        volumes({**document, "image_files": ["/a.nii.gz"]}, {"slices": 0})
