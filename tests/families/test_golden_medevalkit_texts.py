"""Recorded prompts and results of MedEvalKit's sets without images, from published rows to numbers."""

import math

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.families.family import Reply
from medtasks.prompts.template import messages, prompt
from medtasks.scores.scoring import score_replies
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolve_names

from ..extract.reading import recorded
from ..task_families import task_of
from ..tiny_medevalkit import TEXT_FILES, put_texts

SWAPPED = {
    "difficulty": "subject",
    "field": "difficulty",
}  # SuperGPQA's parts by the kit's names, which it swaps


@pytest.fixture
def cases(golden, tmp_path):
    """Each recorded case with its documents, prepared from a file in the published format."""
    if not (golden / "medevalkit" / "text_sets.jsonl").is_file():
        pytest.skip(f"no recorded sets without images in {golden}")

    def prepared():
        for number, case in enumerate(recorded(golden / "medevalkit", "text_sets", 1)):
            dataset = task_file(f"medevalkit_{case['set']}").dataset
            source = put_texts(case["set"], case["rows"], tmp_path / str(number))
            prepare(dataset, Options(source, allow_incomplete=True))
            yield case, load_documents(dataset)

    return prepared


def test_golden_medevalkit_text_prompts(cases):
    names = set()
    for case, documents in cases():
        names.add(case["set"])
        assert [document.get("gold") or document["answer"] for document in documents] == case[
            "answers"
        ]
        for ending, key in (("", "prompts"), ("_reasoning", "reasoning_prompts")):
            config = task_config(f"medevalkit_{case['set']}{ending}")
            settings = resolve_names(config["lmms_eval_specific_kwargs"])["default"]
            assert [prompt(document, settings) for document in documents] == case[key], case[
                "set"
            ]
            turns = [messages(document, settings) for document in documents]
            shown = [
                [part for turn in turn_list for part in turn["content"]] for turn_list in turns
            ]
            assert shown == [[{"type": "text", "text": text}] for text in case[key]], case[
                "set"
            ]
    assert names == set(TEXT_FILES)


def test_golden_medevalkit_text_metrics(cases):
    for case, documents in cases():
        rows = task_file(f"medevalkit_{case['set']}").rows
        # The kit takes a missing reply for an empty one.
        replies = {
            document["doc_id"]: Reply.of_text(reply or "")
            for document, reply in zip(documents, case["replies"], strict=True)
        }
        scores = score_replies(
            task_of("kit_choice", rows, breakdown=[*SWAPPED.values()]), documents, replies
        )
        stops = case.get("error") == "NameError"
        for row in ("reference", "reference_release"):
            assert math.isnan(scores[row].estimates["accuracy"].value) is stops
        for row in ("reference_fixed",) if stops else ("reference", "reference_fixed"):
            total, found = case["metrics"]["total metrics"], scores[row]
            assert found.estimates["accuracy"].value == pytest.approx(total["acc"], rel=1e-9)
            assert found.estimates["scored_samples"].value == total["total"]
            wrong = {reading.score["sample"] for reading in found.wrong}
            assert [document["doc_id"] not in wrong for document in documents] == case[
                "correct"
            ]
            for part in SWAPPED.keys() & case["metrics"].keys():
                groups = {
                    group.name: (group.questions, group.scores[0].value)
                    for group in found.groups[SWAPPED[part]]
                }
                assert groups == {
                    name: (one["total"], pytest.approx(one["acc"], rel=1e-9))
                    for name, one in case["metrics"][part].items()
                }
