"""Prompts of MedEvalKit and MedVLThinker letter by letter, as recorded from their own code."""

import hashlib

import pytest
from PIL import Image

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.prompts.template import messages, prompt
from medtasks.tasks.prompt_settings import prompt_settings
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolve_names

from ..data.medevalkit.test_documents import SOURCES
from ..extract.reading import recorded


def settings(name):
    return prompt_settings(name)["default"]


def asked(case):
    """Return the settings and the document that make a recorded prompt."""
    kind, language, options = case["kind"], case.get("lang"), case.get("options")
    ending = "_reasoning" if case["reasoning"] else ""
    doc = {"question": case["question"], "image_files": [], "language": language}
    if kind == "multiple_choice":
        return f"medevalkit_choice{ending}", {**doc, "option_lines": case["choices"]}
    if kind == "mmmu":
        lines = [
            f"({letter}) {text}"
            for letter, text in zip("ABCDEFGH", options or (), strict=False)
        ]
        doc["question_type"] = "open" if options is None else "multiple-choice"
        return f"medevalkit_mmmu{ending}", {**doc, "option_lines": lines}
    if kind == "judgement":
        return f"medevalkit_question{ending}", {**doc, "answer": "yes"}
    return f"medevalkit_slake{ending}", {
        **doc,
        "answer_type": "OPEN" if kind == "open_ended" else "CLOSED",
    }


def test_every_recorded_prompt(golden):
    for case in recorded(golden, "medevalkit/prompts", 1):
        if case["kind"] != "judge":
            name, doc = asked(case)
            assert prompt(doc, settings(name)) == case["prompt"], name


def test_every_recorded_message_of_medvlthinker(golden, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "image.png")
    for case in recorded(golden, "medevalkit/medvlthinker_prompts", 1):
        doc = {
            **case,
            "options": list(case["options"].values()),
            "image_files": [str(tmp_path / "image.png")] * case["images"],
        }
        doc["question"] += "\nAnswer Choices: (A) repeated"
        (turn,) = messages(doc, settings("medvlthinker"))
        kept = [
            {key: value for key, value in part.items() if key != "url"}
            for part in turn["content"]
        ]
        assert kept == case["content"]


TASKS = {"mmmu_med_validation": "mmmu_med"}


@pytest.fixture(scope="module")
def home(recorded_data, tmp_path_factory):
    """A data folder that holds the sets of which messages were recorded."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder))
        for name, source in SOURCES.values():
            prepare(name, Options(recorded_data / "medevalkit" / source, allow_incomplete=True))
    return folder


def digest(image):
    return hashlib.sha256(image.tobytes()).hexdigest()[:16]


def test_every_recorded_message(golden, home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    for case in recorded(golden, "medevalkit/messages", 1):
        name = f"medevalkit_{TASKS.get(case['set'], case['set'])}"
        asking = f"{name}_reasoning" if case["reasoning"] else name
        doc = load_documents(task_file(name).dataset)[case["row"]]
        (turn,) = messages(
            doc, resolve_names(task_config(asking)["lmms_eval_specific_kwargs"])["default"]
        )
        shown = [part.get("text") or digest(part["url"]) for part in turn["content"]]
        labelled = case["image_key"] == "images"
        labels = [
            [f"<image_{number}>: "] if labelled else []
            for number, _ in enumerate(case["images"], 1)
        ]
        before = [
            part
            for label, one in zip(labels, case["images"], strict=True)
            for part in (*label, one)
        ]
        assert shown == [*before, case["prompt"]]
