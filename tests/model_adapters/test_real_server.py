"""A real server beside ``hf_vlm`` on the checkpoint it serves, on all of MediConfusion's questions.

Runs where MEDTASKS_TEST_SERVER names its base URL and MEDTASKS_TEST_CHECKPOINT the folder; in float32, both.
"""

import json
import os

import pytest
from medtasks.model_adapters.hf_vlm import HfVlm
from medtasks.model_adapters.vlm_server import VlmServer

from medtasks.data.document_store import open_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.prompts.images import images

from .toys import SPLIT, TASK, instances

SERVER, CHECKPOINT = (
    os.environ.get("MEDTASKS_TEST_SERVER"),
    os.environ.get("MEDTASKS_TEST_CHECKPOINT"),
)
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (SERVER and CHECKPOINT),
        reason="needs MEDTASKS_TEST_SERVER and MEDTASKS_TEST_CHECKPOINT",
    ),
]


def asked(documents):
    """Letters, and the texts of the options, behind each question."""
    found = []
    for row, document in enumerate(documents):
        options = ["A", "B"] if row % 2 else [f" {option}" for option in document["options"]]
        found += instances("loglikelihood", documents, options, images, [row])
    return found


@pytest.mark.parametrize("likelihood", ["auto", "prompt_logprobs"])
def test_scores_and_greedy_flags_are_those_of_hf_vlm(test_data, likelihood):
    prepare("mediconfusion", Options(test_data / "mediconfusion"))
    documents = list(open_documents("mediconfusion")["test"])
    models = [
        HfVlm(
            pretrained=CHECKPOINT,
            dtype="float32",
            journal=False,
            batch_size=8,
            loglikelihood_format="json",
        ),
        VlmServer(
            base_url=SERVER, likelihood=likelihood, journal=False, loglikelihood_format="json"
        ),
    ]
    scores = []
    for model in models:
        model.task_dict = {TASK: {SPLIT: documents}}
        scores.append([json.loads(score) for score, _ in model.loglikelihood(asked(documents))])
    for local, served in zip(*scores, strict=True):
        assert served["sum"] == pytest.approx(local["sum"], abs=1e-4)
        assert (served["greedy"], served["tokens"]) == (local["greedy"], local["tokens"])
