"""Prompts and images that models of every family get from the variants of every task."""

import functools
import re

import numpy as np
import pytest
from PIL import Image

from medtasks.data.images.volume_files import GREY
from medtasks.errors import SourceError
from medtasks.prompts import template as prompts
from medtasks.prompts.images import without_own_marks
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import resolve_names

from ..tables import each_row

MARK = "<image>"
CALLED = re.compile(r"<image_\d+>:|<image \d+>")
"""A label before an image, which goes with it, and a text's own name for one, which is its place or stays."""
SHOWING = ("lmms_eval_specific_kwargs", "doc_to_text", "doc_to_visual", "doc_to_messages")


def one_per_prompt():
    """Return one image task for each way of asking; MedMNIST's sets, for one, are asked alike."""
    names = {}
    for name, task in task_files().items():
        if task.variants:
            config = task_config(name)
            names.setdefault(repr([config.get(key) for key in SHOWING]), name)
    return list(names.values())


def families(name):
    """Return a model family for each way in which a task's prompt is set."""
    settings = task_config(name)["lmms_eval_specific_kwargs"]
    return {repr(settings[family]): family for family in reversed(settings)}.values()


CASES = [(name, family) for name in one_per_prompt() for family in families(name)]


@pytest.fixture(autouse=True)
def _judge(prepared, monkeypatch):
    """Some prompts ask for a judge first; nobody is called."""
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "none")


@functools.cache
def task(name):
    """Return the settings of a task and its first documents."""
    return resolve_names(task_config(name)), task_documents(task_file(name))[:3]


def asked(name, family):
    config, documents = task(name)
    settings = config["lmms_eval_specific_kwargs"][family]
    return [
        (
            document,
            config["doc_to_text"](document, settings),
            config["doc_to_visual"](document, settings),
        )
        for document in documents
    ]


def words(text):
    """Return a prompt without blanks, and without its marks and what images are called in it."""
    return "".join(CALLED.sub("", text.replace(MARK, "")).split())


def own_images(document, settings):
    files = [document["image_file"]] if "image_file" in document else document["image_files"]
    return len(files[: settings.get("shown_images")]) * (settings.get("slices") or 1)


def settings_of(name, family):
    return task(name)[0]["lmms_eval_specific_kwargs"][family]


def with_variant(name, family, ending):
    """Return what a task and a variant of it ask, document by document."""
    return zip(asked(name, family), asked(f"{name}{ending}", family), strict=True)


def bytes_of(images):
    return [image.tobytes() for image in images]


@each_row(("name", "family"), CASES)
def test_a_blind_prompt_lacks_the_images_and_not_a_word(name, family):
    for (document, text, images), (_, blind_text, blind_images) in with_variant(
        name, family, "_blind"
    ):
        own = own_images(document, settings_of(name, family))
        assert own > 0
        assert text.count(MARK) in (0, len(images))
        assert blind_text.count(MARK) == (text.count(MARK) - own if text.count(MARK) else 0)
        assert words(blind_text) == words(text)
        assert "<img>" not in blind_text
        assert bytes_of(blind_images) == bytes_of(images[: len(images) - own])


@each_row(("name", "family"), CASES)
@each_row("ending", ["_blank", "_swapped"])
def test_a_prompt_with_grey_or_other_images_is_the_same(name, family, ending):
    for (document, text, images), (other, other_text, shown) in with_variant(
        name, family, ending
    ):
        first = len(images) - own_images(document, settings_of(name, family))
        assert (other["doc_id"], other_text, len(shown)) == (
            document["doc_id"],
            text,
            len(images),
        )
        assert bytes_of(shown[:first]) == bytes_of(images[:first])


@each_row(("name", "family"), CASES)
def test_a_blank_image_is_grey_and_of_the_same_size(name, family):
    for (document, _, images), (_, _, shown) in with_variant(name, family, "_blank"):
        first = len(images) - own_images(document, settings_of(name, family))
        for image, grey in zip(images[first:], shown[first:], strict=True):
            if not isinstance(image, Image.Image):  # a volume's file, or its values
                assert {*grey.ravel()} == {0.5}
            else:
                assert grey.size == image.size
                assert grey.getcolors() == [(image.width * image.height, GREY)]


@each_row(("name", "family"), CASES)
def test_a_swapped_volume_is_another_one(name, family):
    for (document, _, images), (_, _, shown) in with_variant(name, family, "_swapped"):
        first = len(images) - own_images(document, settings_of(name, family))
        for image, other in zip(images[first:], shown[first:], strict=True):
            if not isinstance(image, Image.Image):
                assert np.any(np.not_equal(image, other))


@each_row("name", [name for name, family in CASES if family == "default"])
def test_conversations_of_variants_differ_in_their_images_alone(name):
    hook = task_config(name).get("doc_to_messages")
    if hook is None:  # the harness makes one of the prompt and the images
        return
    settings = task(name)[0]["lmms_eval_specific_kwargs"]["default"]
    own = own_images(task(name)[1][0], settings)
    counts = {}
    for variant in ("", "_blind", "_blank", "_swapped"):
        turns = hook.resolve()(task(name + variant)[1][0], settings)
        pictures = [
            part["url"] for turn in turns for part in turn["content"] if part["type"] == "image"
        ]
        texts = [
            "".join(part["text"] for part in turn["content"] if part["type"] == "text")
            for turn in turns
        ]
        counts[variant] = (len(pictures), words("".join(texts)))
        grey = [
            picture.getcolors(1 << 20) == [(picture.width * picture.height, GREY)]
            for picture in pictures
        ]
        assert variant == "_blind" or all(grey[len(grey) - own :]) == (variant == "_blank")
    assert counts["_blind"] == (counts[""][0] - own, counts[""][1])
    assert counts["_blank"] == counts["_swapped"] == counts[""]


@each_row(
    ("text", "settings", "expected"),
    [
        (
            "<image>1 <image>2 <image>3",
            {"demonstrations": ["a.jpg", "b.jpg"]},
            "<image>1 <image>2 3",
        ),
        (
            "<image>1 <image>2 <image>3 <image>",
            {"demonstrations": ["a.jpg", "b.jpg"]},
            "<image>1 <image>2 3 ",
        ),
        ("no mark", {"demonstrations": ["a.jpg", "b.jpg"]}, "no mark"),
        ("<image> one", {}, " one"),
    ],
)
def test_marks_of_the_question_alone_are_removed(text, settings, expected):
    assert without_own_marks(text, settings) == expected


def test_a_question_that_holds_the_mark_keeps_it():
    document = {
        "question": "<image> <img>?",
        "options": ["<image>"],
        "image_files": [],
        "variant": "blind",
    }
    lettered = prompts.lettered_prompt(
        document, {"template": "<image>{{ question }}|{{ option_a }}"}
    )
    assert lettered == "<image> <img>?|<image>"
    closed = {**document, "kind": "binary", "choices": ""}
    assert (
        prompts.closed_prompt(closed, {"yes_no_template": "<image>{{ question }}"})
        == "<image> <img>?"
    )
    for template in (
        "{{ image }} {{ question }}",
        "{{ images }} {{ question }}",
        "{{ question }}",
    ):
        assert (
            prompts.prompt(document, {"template": template, "image_mark": "<image>"})
            == "<image> <img>?"
        )


def test_a_prompt_has_as_many_places_as_images():
    with pytest.raises(SourceError, match="has 0 images and its prompt 1 places"):
        prompts.prompt(
            {"question": "?", "image_files": []}, {"template": "{{ image }} {{ question }}"}
        )
