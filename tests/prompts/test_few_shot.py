"""Solved examples before the question: as one text, as turns, and their images."""

import pytest

from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.errors import DatasetNotPrepared, SourceError
from medtasks.prompts import few_shot
from medtasks.prompts import template as multimedeval_prompts
from medtasks.prompts.few_shot import images, messages, prompt

from .. import tiny_multimedeval
from ..tables import each_row
from .test_template import settings


@pytest.fixture
def home(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    return multimedeval_home


def documents(name):
    return load_documents(f"multimedeval_{name}")


def plain(message):
    parts = (part["text"] if "text" in part else f"[{part['url'].width}]" for part in message["content"])
    return message["role"], "".join(parts)


def test_marks_of_a_simple_model(home):
    doc = documents("vqa_rad")[1]
    closed = "Answer the following question with yes or no. "
    assert prompt(doc, settings("vqa_rad", "radfm")) == (
        "<image> What is 4?\nCT\n\n"
        f"{closed}<image> What is 5?\nyes\n\n"
        "<image> What is 6?\nleft lung\n\n"
        f"{closed}<image> What is 7?\nno\n\n"
        "<image> What is 8?\nan {MRI}\n\n"
        "<image> What is 1?"
    )
    assert "<image>" not in prompt(doc, settings("vqa_rad"))
    entailed = documents("mednli")[2]
    *blocks, question = prompt(entailed, settings("mednli")).split("\n\n")
    answers = ["contradiction", "neutral", "entailment", "contradiction", "neutral"]
    assert [block.rpartition(" ")[2] for block in blocks] == [f"{answer}." for answer in answers]
    assert question == multimedeval_prompts.prompt(entailed, settings("mednli"))
    examples = f"<image> What is 4? CT<|endofchunk|>{closed}<image> What is 5? yes<|endofchunk|><image> What is 6?"
    assert prompt(doc, settings("vqa_rad", "med_flamingo")).startswith(examples)


@each_row("name, per_row", [("diff_vqa", 2), ("octmnist", 1), ("medqa", 0)])
def test_images_are_as_many_as_places_and_in_their_order(home, name, per_row):
    doc = documents(name)[3]
    text, shown = prompt(doc, settings(name, "radfm")), images(doc, settings(name, "radfm"))
    assert text.count("<image>") == len(shown)
    widths = [10 + 2 * number + position for number in (4, 5, 6, 7, 8, 3) for position in range(per_row)]
    assert [image.width for image in shown] == widths


def test_turns_of_a_chat_model(home, monkeypatch):
    doc = documents("diff_vqa")[0]
    closed = "Answer the following question with yes or no. "
    assert [plain(message) for message in messages(doc, settings("diff_vqa"))] == [
        ("user", "[18][19] What is 4?"),
        ("assistant", "CT"),
        ("user", f"{closed}[20][21] What is 5?"),
        ("assistant", "yes"),
        ("user", "[22][23] What is 6?"),
        ("assistant", "left lung"),
        ("user", f"{closed}[24][25] What is 7?"),
        ("assistant", "no"),
        ("user", "[26][27] What is 8?"),
        ("assistant", "an {MRI}"),
        ("user", f"{closed}[10][11] What is 0?"),
    ]
    monkeypatch.setattr(few_shot, "load_documents", None)  # demonstrations are read once
    images(doc)[0].thumbnail((2, 2))  # what some models do to the images they get
    assert [image.width for image in images(doc)] == [*range(18, 28), 10, 11]


def test_dataset_without_demonstrations(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("octmnist", demonstrations=False)
    doc, folder = documents("octmnist")[0], prepared_folder("multimedeval_octmnist")
    again = "prepare it again from a source with its training split: medtasks data prepare multimedeval_octmnist --so"
    expected = rf"dataset 'multimedeval_octmnist' in \S+ has no demonstrations for few-shot prompts; {again}"
    for hook in (prompt, images, messages):
        with pytest.raises(DatasetNotPrepared, match=expected):
            hook(doc, settings("octmnist"))
    why = "no few-shot demonstrations: the source has no training split"
    Manifest.read(folder).model_copy(update={"left_out": ("row 3: torn", why)}).write(folder)
    with pytest.raises(DatasetNotPrepared, match=rf"few-shot prompts \({why}\); prepare it again"):
        prompt(doc, settings("octmnist"))
    assert multimedeval_prompts.prompt(doc, settings("octmnist")).startswith("Options:")
    tiny_multimedeval.prepare("octmnist")
    example = few_shot.demonstrations("multimedeval_octmnist")[2]
    (prepared_folder("multimedeval_octmnist") / example["image_files"][0]).unlink()
    with pytest.raises(SourceError, match=r"of sample 6 is missing; run 'medtasks data prepare multimedeval_octmnist'"):
        images(documents("octmnist")[0])
