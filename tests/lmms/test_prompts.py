"""What models of every family are shown by the variants of every task."""

import re

import pytest
from PIL import Image

from medtasks.data.images.volume_files import GREY
from medtasks.data.variants import rotated
from medtasks.errors import SourceError
from medtasks.prompts import template as multimedeval_prompts
from medtasks.prompts import template as prompts
from medtasks.prompts.images import own_marks_removed
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import resolved

from ..tables import each_row

MARK = "<image>"
CALLED = re.compile(r"<image_\d+>:|<image \d+>")
"""What stands before an image, which goes with it, and a text's own name for one, which is its place or stays."""
SHOWING = ("lmms_eval_specific_kwargs", "doc_to_text", "doc_to_visual", "doc_to_messages")


def one_per_prompt():
    """Return one image task for each way of asking; MedMNIST's sets, for one, are asked alike."""
    found = {}
    for name, task in task_files().items():
        if task.variants:
            config = task_config(name)
            found.setdefault(repr([config.get(key) for key in SHOWING]), name)
    return list(found.values())


CASES = [(name, family) for name in one_per_prompt() for family in task_config(name)["lmms_eval_specific_kwargs"]]


@pytest.fixture(autouse=True)
def _judge(prepared, monkeypatch):
    """Some prompts ask for a judge first; nobody is called."""
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "none")


def asked(name, family):
    """Return per document its prompt and its images, and the hook's settings."""
    config = resolved(task_config(name))
    settings = config["lmms_eval_specific_kwargs"][family]
    documents = task_documents(task_file(name))
    return [
        (document, config["doc_to_text"](document, settings), config["doc_to_visual"](document, settings))
        for document in documents[:3]
    ]


def words(text):
    """Return a prompt without blanks, and without its marks and what images are called in it."""
    return "".join(CALLED.sub("", text.replace(MARK, "")).split())


def own_images(document, settings):
    files = [document["image_file"]] if "image_file" in document else document["image_files"]
    return len(files[: settings.get("shown_images")]) * (settings.get("slices") or 1)


@each_row(("name", "family"), CASES)
def test_marks_and_images(name, family):
    base, blind = asked(name, family), asked(f"{name}_blind", family)
    settings = resolved(task_config(name))["lmms_eval_specific_kwargs"][family]
    for (document, text, images), (_, blind_text, blind_images) in zip(base, blind, strict=True):
        own = own_images(document, settings)
        assert own > 0
        assert text.count(MARK) in (0, len(images))
        assert len(blind_images) == len(images) - own
        assert blind_text.count(MARK) == (text.count(MARK) - own if text.count(MARK) else 0)
        # The images are gone, and not a word else.
        assert words(blind_text) == words(text)
        assert "<img>" not in blind_text
        kept = [image for image in images[: len(images) - own] if isinstance(image, Image.Image)]
        assert [image.tobytes() for image in blind_images] == [image.tobytes() for image in kept]


@each_row(("name", "family"), CASES)
def test_grey_and_other_images(name, family):
    settings = resolved(task_config(name))["lmms_eval_specific_kwargs"][family]
    shown = {variant: asked(f"{name}{variant}", family) for variant in ("", "_blank", "_swapped")}
    for (document, text, images), (_, blank_text, greys), (other, swapped_text, others) in zip(
        *shown.values(), strict=True
    ):
        first = len(images) - own_images(document, settings)
        assert blank_text == swapped_text == text
        assert len(greys) == len(others) == len(images)
        for image, grey, swapped in zip(images[first:], greys[first:], others[first:], strict=True):
            if isinstance(image, str):
                assert len({image, grey, swapped}) == 3
                continue
            assert grey.size == image.size
            assert grey.getcolors() == [(image.width * image.height, GREY)]
        if first:
            assert [image.tobytes() for image in greys[:first]] == [image.tobytes() for image in images[:first]]
            assert [image.tobytes() for image in others[:first]] == [image.tobytes() for image in images[:first]]
        assert other["doc_id"] == document["doc_id"]


@each_row("name", [name for name, family in CASES if family == "default"])
def test_conversations(name):
    hook = task_config(name).get("doc_to_messages")
    if hook is None:  # the harness makes one of the prompt and the images
        return
    settings = resolved(task_config(name))["lmms_eval_specific_kwargs"]["default"]
    counts = {}
    for variant in ("", "_blind", "_blank", "_swapped"):
        document = task_documents(task_file(name + variant))[0]
        turns = hook.resolve()(document, settings)
        pictures = [part["url"] for turn in turns for part in turn["content"] if part["type"] == "image"]
        texts = ["".join(part["text"] for part in turn["content"] if part["type"] == "text") for turn in turns]
        counts[variant] = (len(pictures), words("".join(texts)))
        grey = [picture.getcolors(1 << 20) == [(picture.width * picture.height, GREY)] for picture in pictures]
        own = own_images(document, settings)
        assert all(grey[len(grey) - own :]) == (variant == "_blank") or variant == "_blind"
    document = task_documents(task_file(name))[0]
    own = own_images(document, settings)
    assert counts["_blind"] == (counts[""][0] - own, counts[""][1])
    assert counts["_blank"] == counts["_swapped"] == counts[""]


def test_marks_of_the_question_alone_are_removed():
    three = {"demonstrations": ["a.jpg", "b.jpg"]}
    assert own_marks_removed("<image>1 <image>2 <image>3", three) == "<image>1 <image>2 3"
    assert own_marks_removed("<image>1 <image>2 <image>3 <image>", three) == "<image>1 <image>2 3 "
    assert own_marks_removed("no mark", three) == "no mark"
    assert own_marks_removed("<image> one", {}) == " one"


def test_a_question_that_holds_the_mark_keeps_it():
    document = {"question": "<image> <img>?", "options": ["<image>"], "image_files": [], "variant": "blind"}
    assert (
        prompts.lettered_prompt(document, {"template": "<image>{{ question }}|{{ option_a }}"})
        == "<image> <img>?|<image>"
    )
    closed = {**document, "kind": "binary", "choices": ""}
    assert prompts.closed_prompt(closed, {"yes_no_template": "<image>{{ question }}"}) == "<image> <img>?"
    for template in ("{{ image }} {{ question }}", "{{ images }} {{ question }}", "{{ question }}"):
        assert multimedeval_prompts.prompt(document, {"template": template, "image_mark": "<image>"}) == (
            "<image> <img>?"
        )


def test_without_the_variant_a_missing_image_is_still_an_error():
    with pytest.raises(SourceError, match="has 0 images and its prompt 1 places"):
        multimedeval_prompts.prompt({"question": "?", "image_files": []}, {"template": "{{ image }} {{ question }}"})


@each_row(("name", "family"), [case for case in CASES if "rotated" in task_file(case[0]).variants])
def test_rotated_prompts_show_the_options_in_their_order(name, family):
    config = resolved(task_config(f"{name}_rotated"))
    (document, *_) = task_documents(task_file(name))
    options = [f"option no. {number} of this test" for number, _ in enumerate(document["options"])]
    lines = {"option_lines": options} if "option_lines" in document else {}
    for turned in rotated([{**document, "options": options, **lines}]):
        text = config["doc_to_text"](turned, config["lmms_eval_specific_kwargs"][family])
        places = [text.index(option) for option in turned["options"]]
        assert places == sorted(places)
