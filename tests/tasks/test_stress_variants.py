"""Stress variants over published questions with scripted replies; degraded pixels against a second implementation."""

import io
import json
import math
import re
from collections import Counter

import cv2
import numpy as np
import pytest
from loguru import logger
from PIL import Image
from scipy.ndimage import gaussian_filter

from medtasks.data.images.degrading import SEVERITIES, STRENGTHS, degrade
from medtasks.data.samples import Sample
from medtasks.data.sources.medevalkit import kit_choice, lettered
from medtasks.data.variants import CANNOT_TELL, NONE_OF_THEM, abstain, degraded, nota, told
from medtasks.errors import MedTasksError
from medtasks.families.family import Reply
from medtasks.metrics.metric import evaluate
from medtasks.prompts.images import images
from medtasks.prompts.template import NO_IMAGE
from medtasks.prompts.volumes import volumes
from medtasks.tasks.documents import variant_hook
from medtasks.tasks.task_files import include, task_config, task_file
from medtasks.tasks.task_index import SETTINGS, resolved

from ..tables import each_row

KIT, PAIRS = "medevalkit_medxpertqa_mm", "mediconfusion"


@pytest.fixture(scope="module")
def questions(test_data):
    """MedXpertQA's questions with images, which repeat their options, as this package prepares them."""
    documents = []
    for line in (test_data / "medxpertqa" / "medxpertqa_mm_input.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        options, files = [option["content"] for option in row["options"]], [one["image_path"] for one in row["images"]]
        document = kit_choice(row["id"], options, lettered(options), row["label"][0], question=row["question"])
        documents.append({**document, "dataset": KIT, "image_files": files, "image_sha256": files})
    return documents


@pytest.fixture(scope="module")
def pairs(test_data):
    """MediConfusion's questions, two to a pair."""
    records = json.loads((test_data / "mediconfusion" / "dataset.json").read_text(encoding="utf-8"))
    return [
        {
            "doc_id": f"{number}/{position}",
            "pair_id": number,
            "position": position,
            "categories": [],
            "dataset": PAIRS,
            "image_id": record[f"im_{position}"],
            "question": record["question"],
            "image_file": str(test_data / "mediconfusion" / "images" / f"{record[f'im_{position}_local']}.jpg"),
            "options": [record["option_A"], record["option_B"]],
            "answer": record[f"im_{position}_correct"],
        }
        for number, record in records.items()
        for position in (1, 2)
    ]


def values(name, documents, reply):
    """Return the metrics of scripted replies by row."""
    task, rows = task_file(name), {}
    for title, row in task.rows.items():
        scores = [task.family.score(Sample(document), Reply(reply(document)), row) for document in documents]
        estimates = evaluate(task.metrics, task.family.settled(scores))
        rows[title] = {metric: estimate.value for metric, estimate in estimates.items()}
    return rows


def prompts_of(name):
    """Return the hooks and settings that make a task's prompts."""
    keys = ("doc_to_text", "doc_to_visual", "doc_to_messages", SETTINGS)
    return resolved({key: value for key, value in task_config(name).items() if key in keys})


def named(document, index):
    """Return what a model says for an option: its letter, or the name of a class."""
    return document["options"][index] if "label" in document else "ABCDEFGHIJK"[index]


def letter_of(document, text):
    return "ABCDEFGHIJK"[document["options"].index(text)]


@each_row("form", ["{letter}. {text}", "The answer is {letter}."])
def test_a_model_that_always_says_none_of_the_others(questions, form):
    def reply(document):
        return form.format(letter=letter_of(document, NONE_OF_THEM), text=NONE_OF_THEM)

    for name, wanted, control in ((f"{KIT}_nota", 1, False), (f"{KIT}_nota_control", 0, True)):
        rows = values(name, nota(questions[::20], control=control), reply)
        assert {title: row["accuracy"] for title, row in rows.items()} == dict.fromkeys(task_file(KIT).rows, wanted)


def test_one_option_is_replaced_wherever_the_prompt_shows_it(questions):
    lines = []
    logger.add(lines.append, level="INFO")
    forms = (nota(questions), nota(questions, control=True))
    by_id = {document["doc_id"]: document for document in questions}
    config = prompts_of(KIT)
    for control, form in enumerate(forms):
        for new in form:
            old, text = by_id[new["doc_id"]], config["doc_to_text"](new, config[SETTINGS]["default"])
            place = letter_of(new, NONE_OF_THEM)
            gone = old["options"]["ABCDEFGHIJK".index(place)]
            assert (place != old["answer"], new["answer"], new["gold"]) == (control, old["answer"], old["gold"])
            assert (f"({place}) {NONE_OF_THEM}" in text, f"\n{place}. {NONE_OF_THEM}\n" in text) == (True, True)
            assert (f"({place}) {gone}" in text, f"\n{place}. {gone}\n" in text) == (False, False)
    words = re.compile(r"(?i)none|neither$|all of the above|(both )?[a-e] and [a-e]$|both$")
    unusable = {one["doc_id"] for one in questions if any(map(words.match, one["options"]))}
    assert {one["doc_id"] for one in forms[0]} == by_id.keys() - unusable
    assert nota(questions, control=True) == forms[1]
    assert f"{len(unusable)} of 2,000 questions of {KIT} cannot be asked with" in lines[0]
    with pytest.raises(MedTasksError, match="no question has options, one right answer, and none like 'None of the"):
        nota([{**questions[0], "options": ["liver", "None of the above"]}])


def test_a_text_as_gold_lines_of_null_options_and_lines_without_letters():
    kept = {"doc_id": "1", "dataset": "x", "question": "Which organ?", "options": ["Liver", "Spleen"], "answer": "B"}
    document = {**kept, "option_lines": ["A: Liver", "B: Spleen", "C: None"], "gold": "Spleen"}
    (changed,) = nota([document])
    assert changed["option_lines"] == ["A: Liver", f"B: {NONE_OF_THEM}", "C: None"]
    assert changed["gold"] == NONE_OF_THEM
    (changed,) = abstain([document])
    assert changed["option_lines"] == ["A: Liver", "B: Spleen", f"C: {CANNOT_TELL}"]
    (changed,) = abstain([{**document, "option_lines": ["Liver", "Spleen"]}])
    assert changed["option_lines"] == ["Liver", "Spleen", CANNOT_TELL]
    for options in (["Spleen", "Spleen"], ["Liver", "Neither"], ["Liver"]):
        with pytest.raises(MedTasksError, match="no question has options"):
            nota([{**kept, "options": options}])
    with pytest.raises(MedTasksError, match="none like 'I cannot tell"):
        abstain([{**kept, "options": ["It cannot be determined", "Spleen"]}])


def mixed(document):
    """Answer rightly, wrongly, not at all and unreadably, in turn over questions or pairs."""
    turn = int(re.sub(r"\D", "", str(document.get("pair_id", document["doc_id"])))) % 4
    right = "ABCDEFGHIJK".index(document["answer"]) if "answer" in document else document["label"]
    wrong = (right + 1) % (len(document["options"]) - 1)
    return [named(document, right), named(document, wrong), named(document, len(document["options"]) - 1), "mumble"][
        turn
    ]


def test_models_that_abstain(questions, pairs):
    classes = {"doc_id": "{}", "options": ["drusen", "normal"], "image_files": [], "dataset": "multimedeval_octmnist"}
    scans = [{**classes, "doc_id": str(number), "label": number % 2} for number in range(8)]
    cases = (
        (KIT, questions[::20], "accuracy"),
        (PAIRS, pairs, "individual_accuracy"),
        ("multimedeval_octmnist", scans, ""),
    )
    for base, documents, main in cases:
        asked = abstain(documents)
        assert [document["options"][-1] for document in asked] == [CANNOT_TELL] * len(documents)
        rows = values(f"{base}_abstain", asked, lambda document: named(document, len(document["options"]) - 1))
        assert rows["robust"]["invalid_rate"] == 0  # MediConfusion's own code knows two letters
        for row in rows.values():
            assert (row["coverage"], row.get(main, 0)) == (0, 0)
            assert math.isnan(row["acc_of_answered"])
        turns = Counter(int(re.sub(r"\D", "", str(one.get("pair_id", one["doc_id"])))) % 4 for one in documents)
        row, total = values(f"{base}_abstain", asked, mixed)["robust"], len(documents)
        assert row["coverage"] == pytest.approx((turns[0] + turns[1]) / total)
        assert row["acc_of_answered"] == pytest.approx(turns[0] / (turns[0] + turns[1]))
        assert row["invalid_rate"] == pytest.approx(turns[3] / total)
        assert row.get(main, 0) == pytest.approx(turns[0] / total if main else 0)


def test_prompts_that_say_that_the_image_is_missing(questions, pairs, tmp_path):
    for name, document in ((KIT, questions[0]), (PAIRS, pairs[0]), ("mediconfusion_gd", pairs[0])):
        (asked,), config = told([document]), prompts_of(f"{name}_told")
        for family, settings in config[SETTINGS].items():
            text, blind = (config["doc_to_text"](one, settings) for one in (asked, {**asked, "variant": "blind"}))
            assert text.replace(f"{NO_IMAGE}\n", "", 1) == blind != text
            assert text.startswith(NO_IMAGE) or family == "med_flamingo"  # whose examples come first
            if "demonstrations" not in settings:
                assert config["doc_to_visual"](asked, settings) == []
        if messages := config.get("doc_to_messages"):
            (turn,) = messages(asked, settings)
            assert [part["type"] for part in turn["content"]] == ["text"]
            assert turn["content"][0]["text"].startswith(NO_IMAGE)
    (tmp_path / "beside_told.py").write_text("def prompt(doc, settings=None):\n    return doc['question']\n")
    (tmp_path / "own.yaml").write_text(
        "task: own_told_task\ndataset_path: json\noutput_type: generate_until\n"
        "doc_to_visual: !function medtasks.hooks.images.images\ndoc_to_text: !function beside_told.prompt\n"
    )
    include([tmp_path])
    assert task_file("own_told_task").variants == ("blind", "blank", "swapped", "told", "degraded")
    assert variant_hook("text_of_own_told_task_told")({"question": "Why?"}, {}) == f"{NO_IMAGE}\nWhy?"


def test_draws_are_balanced_and_the_same_for_one_image(questions, pairs):
    drawn = Counter((one["degradation"], one["severity"]) for one in degraded(questions))
    assert set(drawn) == {(kind, severity) for kind in STRENGTHS for severity in SEVERITIES}
    assert max(drawn.values()) - min(drawn.values()) <= 1  # no two questions share an image
    of_pairs = degraded(pairs)
    for key in ("pair_id", "image_file"):
        looks = {(one[key], one["degradation"], one["severity"]) for one in of_pairs}
        assert len(looks) == len({look[0] for look in looks})
    again = {one["doc_id"]: one for one in degraded(pairs[::-1])}
    assert [again[one["doc_id"]] for one in of_pairs] == of_pairs
    assert degraded([{**questions[0], "image_files": [], "image_sha256": []}])[0]["degradation"] is None


def expected(pixels, kind, strength, seed):
    """Return what a kind makes of pixels, shape (height, width) or (height, width, 3), written a second time."""
    if kind == "jpeg":
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, format="jpeg", quality=int(strength), subsampling="4:2:0")
        coded = np.frombuffer(stream.getvalue(), np.uint8)
        read = cv2.imdecode(coded, cv2.IMREAD_COLOR if pixels.ndim == 3 else cv2.IMREAD_GRAYSCALE)
        return read[:, :, ::-1] if pixels.ndim == 3 else read
    if kind == "blur":
        sigma = strength * min(pixels.shape[:2])
        return gaussian_filter(pixels.astype(float), (sigma, sigma, 0)[: pixels.ndim], mode="nearest", truncate=6)
    levels = pixels.astype(float)
    if kind == "noise":
        noise = np.rint(np.random.default_rng(seed).standard_normal(pixels.shape[:2]) * strength)
        levels = levels + noise.reshape(*noise.shape, *[1] * (pixels.ndim - 2))
    elif kind == "gamma":
        levels = np.rint(np.power(levels / 255, strength) * 255)
    else:
        levels = levels + strength if kind == "brightness" else np.floor((levels - 128) * strength / 100) + 128
    return np.clip(levels, 0, 255)


@each_row("kind", list(STRENGTHS))
def test_pixels_of_each_kind_and_severity(pairs, kind):
    source = Image.open(pairs[0]["image_file"]).convert("RGB").resize((240, 180))
    for image in (source, source.convert("L"), Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))):
        pixels, distances = np.asarray(image), []
        assert np.array_equal(degrade(image, kind, 0, 7), pixels)
        for severity in SEVERITIES:
            made = degrade(image, kind, severity, 7)
            assert (made.mode, made.size, made.tobytes()) == (
                *(image.mode, image.size),
                degrade(image.copy(), kind, severity, 7).tobytes(),
            )
            wanted = expected(pixels, kind, STRENGTHS[kind][severity - 1], 7)
            distance = np.abs(np.asarray(made).astype(float) - wanted)
            # Pillow's Gaussian is three boxes; libraries of JPEG round differently.
            assert distance.max() <= {"jpeg": 3, "blur": 12}.get(kind, 0)
            assert distance.mean() <= {"jpeg": 0.2, "blur": 1.5}.get(kind, 0)
            distances.append(np.abs(np.asarray(made).astype(float) - pixels).mean())
        assert distances == sorted(distances)
        assert distances[0] > 0 or image.size == (16, 16)


def test_a_document_shows_its_degraded_image(pairs):
    (plain,) = images({**pairs[0], "dataset": None})
    seen = {}
    for kind in STRENGTHS:
        document = {**pairs[0], "dataset": None, "variant": "degraded", "degradation": kind, "severity": 2}
        (first,), (second,) = images(document), images(document)
        assert (first.tobytes(), first.mode, first.size) == (second.tobytes(), "RGB", plain.size)
        seen[kind] = first.tobytes()
    assert len({*seen.values(), plain.tobytes()}) == len(STRENGTHS) + 1
    with pytest.raises(MedTasksError, match="files of volumes cannot be degraded; set slices"):
        volumes({"variant": "degraded", "image_files": ["a.nii.gz"], "dataset": "x"}, {"slices": 0})
