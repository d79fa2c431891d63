"""Which of several images a prompt shows, and where."""

import pytest
from PIL import Image

from medtasks.data.variants import blank, blind, swapped
from medtasks.prompts.images import images
from medtasks.prompts.template import messages, prompt
from medtasks.tasks.published_names import prompt_settings

INSTRUCTION = "Answer with the option's letter from the given choices directly."


@pytest.fixture
def doc(tmp_path):
    """A question with four images of the widths 1 to 4, of which it and its options name three, one of them twice."""
    files = [tmp_path / f"{width}.png" for width in range(1, 5)]
    for width, file in enumerate(files, 1):
        Image.new("RGB", (width, 1)).save(file)
    return {
        "doc_id": "q",
        "image_id": "q",
        "image_files": list(map(str, files)),
        "question": "Like <image 3>?",
        "question_type": "multiple-choice",
        "options": ["<image 2>", "<image 1> or <image 3>"],
        "option_lines": ["(A) <image 2>", "(B) <image 1> or <image 3>"],
        "answer": "A",
    }


def settings(name, family="default"):
    of_families = prompt_settings(f"medevalkit_{name}")
    return of_families.get(family, of_families["default"])


def content(doc, name):
    """Return a chat model's turn: texts, and the widths of images."""
    (turn,) = messages(doc, settings(name))
    return [part.get("text") or part["url"].width for part in turn["content"]]


def widths(doc, *setting):
    return [image.width for image in images(doc, settings(*setting))]


def test_images_at_their_names_in_the_text_or_first(doc):
    after = f"\n\n\n        {INSTRUCTION}"
    parts = [4, "\nLike ", 3, "?\n\n(A) ", 2, "\n(B) ", 1, f" or <image 3>{after}"]
    assert content(doc, "mmmu_images") == parts
    marked = "".join("<image>" if isinstance(part, int) else part for part in parts)
    assert prompt(doc, settings("mmmu_images", "llava")) == marked
    assert widths(doc, "mmmu_images", "llava") == [4, 3, 2, 1]
    # Names stay for a model that gets its images first.
    text = prompt(doc, settings("mmmu"))
    assert "Like <image 3>?\n\n(A) <image 2>\n(B) <image 1> or <image 3>\n" in text
    assert (prompt(doc, settings("mmmu_images")), widths(doc, "mmmu_images")) == (text, [1, 2, 3, 4])
    assert (content(doc, "mmmu"), widths(doc, "mmmu")) == ([1, text], [1])  # which shows the first image alone
    assert prompt(doc, settings("mmmu", "llava")).startswith("<image>\n\nLike <image 3>?")


def test_a_label_before_each_image(doc):
    text = "\nQuestion: Like <image 3>?\nOptions: \n" + "\n".join([*doc["option_lines"], INSTRUCTION])
    labels = [part for number in range(1, 5) for part in (f"<image_{number}>: ", number)]
    assert content(doc, "choice_images") == [*labels, text]
    one = {**doc, "image_files": doc["image_files"][:1]}
    assert content(one, "choice_images") == ["<image_1>: ", 1, text]
    assert prompt(one, settings("choice_images", "llava")) == f"<image_1>: <image>\n{text}"
    assert prompt(one, settings("choice_images", "vlm_server")) == f"<image_1>: <image>{text}"


def test_sanity_variants(doc):
    other = {**doc, "doc_id": "r", "image_id": "r", "image_files": doc["image_files"][::-1]}
    for file in other["image_files"]:
        Image.open(file).resize((9, 9)).save(moved := file.replace(".png", "9.png"))
        other["image_files"][other["image_files"].index(file)] = moved
    (hidden,), (grey,), (shown, _) = blind([doc]), blank([doc]), swapped([doc, other])
    assert content(hidden, "choice_images") == content(hidden, "choice")
    assert content(hidden, "mmmu_images") == content(hidden, "mmmu") == [prompt(doc, settings("mmmu"))]
    assert content(grey, "mmmu_images") == content(doc, "mmmu_images")
    assert [part for part in content(shown, "mmmu_images") if isinstance(part, int)] == [9] * 4
    assert content(shown, "mmmu")[0] == 9
