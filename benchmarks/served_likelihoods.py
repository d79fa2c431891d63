"""Likelihoods from a served model: ways beside each other on one server, and beside hf_vlm on the same checkpoint.

    python benchmarks/served_likelihoods.py http://127.0.0.1:8000/v1 [--checkpoint FOLDER] [--questions 48]

Asks MediConfusion's prepared questions (MEDTASKS_HOME). Every measurement has a system prompt of its own, so that none
finds the prefix of another in the server's cache; images are shown once before. Prints questions per second and
requests per question.
"""

import argparse
import itertools
import time
from collections.abc import Sequence
from typing import Any

from lmms_eval.api.instance import Instance
from medtasks.model_adapters.hf_vlm import HfVlm
from medtasks.model_adapters.vlm_server import VlmServer

from medtasks.data.document_store import open_documents
from medtasks.prompts.images import images

_LETTERS = ("A", "B", "C", "D")


def instances(documents: Sequence[Any], letters: bool) -> list[Instance]:
    """Return one request per option: four letters, or the two texts of MediConfusion's prefix score."""
    found = []
    for row, document in enumerate(documents):
        options = _LETTERS if letters else [f" {option}" for option in document["options"]]
        text = f"Question: {document['question']} Answer:"
        for place, option in enumerate(options):
            arguments = (text, option, images, row, "questions", "test")
            metadata = {"task": "questions", "doc_id": row, "repeats": 1}
            found.append(Instance("loglikelihood", arguments, place, metadata=metadata))
    return found


def measured(model: Any, documents: Sequence[Any], letters: bool) -> tuple[float, list[float]]:
    """Return questions per second and the scores; the first two questions prove the way beforehand."""
    model.task_dict = {"questions": {"test": documents}}
    model.loglikelihood(instances(documents[:2], letters))
    began = time.perf_counter()
    scores = model.loglikelihood(instances(documents, letters))
    return len(documents) / (time.perf_counter() - began), [mean for mean, _ in scores]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base_url")
    parser.add_argument("--checkpoint")
    parser.add_argument("--questions", type=int, default=48)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    table = open_documents("mediconfusion")["test"]
    documents = [table[row] for row in range(given.questions)]
    number = itertools.count()
    for _ in range(given.rounds):
        for letters in (True, False):
            kind = "4 letters" if letters else "2 option texts"
            for way in ("prompt_logprobs", "auto"):
                with_prompt = {
                    "system_prompt": f"Measurement {next(number)}.",
                    "concurrency": given.concurrency,
                }
                model = VlmServer(
                    base_url=given.base_url, likelihood=way, journal="false", **with_prompt
                )
                rate, _ = measured(model, documents, letters)
                requests = model.pool.sent / (len(documents) + 2)
                print(
                    f"{kind}, {way}: {rate:.2f} questions/s, {requests:.1f} requests each",
                    flush=True,
                )
                model.clean()
            if given.checkpoint and not letters:
                local = HfVlm(
                    pretrained=given.checkpoint,
                    dtype="float32",
                    journal="false",
                    prefix_cache=False,
                    batch_size=8,
                )
                rate, _ = measured(local, documents, letters)
                print(
                    f"{kind}, hf_vlm without prefix cache: {rate:.2f} questions/s", flush=True
                )
                local.clean()


if __name__ == "__main__":
    main()
