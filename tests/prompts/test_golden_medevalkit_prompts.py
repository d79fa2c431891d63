"""Prompts of MedEvalKit and MedVLThinker letter by letter, as recorded from their own code."""

import hashlib

import pytest
from PIL import Image

from medtasks.data.store import load_documents
from medtasks.harness.prompt_settings import prompt_settings
from medtasks.prompts.template import messages, prompt

from ..extract.reading import recorded
from ..medevalkit_sets import prepare_all


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
        lines = [f"({letter}) {text}" for letter, text in zip("ABCDEFGH", options or (), strict=False)]
        doc["question_type"] = "open" if options is None else "multiple-choice"
        return f"medevalkit_mmmu{ending}", {**doc, "option_lines": lines}
    if kind == "judgement":
        return f"medevalkit_question{ending}", {**doc, "answer": "yes"}
    return f"medevalkit_slake{ending}", {**doc, "answer_type": "OPEN" if kind == "open_ended" else "CLOSED"}


def test_every_recorded_prompt(golden):
    for case in recorded(golden, "medevalkit/prompts", 1):
        if case["kind"] != "judge":
            name, doc = asked(case)
            assert prompt(doc, settings(name)) == case["prompt"], name


@pytest.fixture
def pictures(tmp_path):
    files = [tmp_path / f"{number}.png" for number in range(2)]
    for file in files:
        Image.new("RGB", (4, 4)).save(file)
    return list(map(str, files))


def test_every_recorded_message_of_medvlthinker(golden, pictures):
    for case in recorded(golden, "medevalkit/medvlthinker_prompts", 1):
        doc = {**case, "options": list(case["options"].values()), "image_files": pictures[: case["images"]]}
        doc["question"] += "\nAnswer Choices: (A) repeated"
        (turn,) = messages(doc, settings("medvlthinker"))
        kept = [{key: value for key, value in part.items() if key != "url"} for part in turn["content"]]
        assert kept == case["content"]


DATASETS = {
    "vqa_rad": "multimedeval_vqa_rad",
    "path_vqa": "multimedeval_path_vqa",
    "mmmu_med_validation": "medevalkit_mmmu_med_val",
}
SETTINGS = {"medxpertqa_mm": "choice_images", "medframeqa": "choice_images"} | {
    name: name for name in ("vqa_rad", "path_vqa", "slake")
}


@pytest.fixture(scope="module")
def home(test_data, tmp_path_factory):
    """A data folder that holds the sets of which messages were recorded."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder))
        prepare_all(test_data)
    return folder


def digest(image):
    return hashlib.sha256(image.tobytes()).hexdigest()[:16]


def test_every_recorded_message(golden, home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    for case in recorded(golden, "medevalkit/messages", 1):
        name = case["set"]
        doc = load_documents(DATASETS.get(name, f"medevalkit_{name}"))[case["row"]]
        kind = "mmmu" if name.startswith("mmmu") else SETTINGS.get(name, "choice")
        (turn,) = messages(doc, settings(f"medevalkit_{kind}{'_reasoning' if case['reasoning'] else ''}"))
        shown = [part.get("text") or digest(part["url"]) for part in turn["content"]]
        labelled = case["image_key"] == "images"
        labels = [[f"<image_{number}>: "] if labelled else [] for number, _ in enumerate(case["images"], 1)]
        before = [part for label, one in zip(labels, case["images"], strict=True) for part in (*label, one)]
        assert shown == [*before, case["prompt"]]
