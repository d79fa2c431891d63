"""What the harness leaves on disk of a made-up model."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from medtasks.data.dataset_lookup import provenance
from medtasks.data.document_store import load_documents


def write_run(
    folder: Path, tasks: Iterable[str], skill: float, seed: int, *, samples: bool = True
) -> Path:
    """Write what the harness leaves of a made-up model that is right with probability ``skill``."""
    folder.mkdir()
    chance = random.Random(seed)
    documents = load_documents("mediconfusion")
    results: dict[str, dict[str, Any]] = {
        "results": {},
        "configs": {},
        "n-samples": {},
        "config": {"model": folder.name, "model_args": ""},
    }
    for task in tasks:
        lines = []
        for row, document in enumerate(documents):
            right = chance.random() < skill
            reply = document["answer"] if right else {"A": "B", "B": "A"}[document["answer"]]
            lines.append({"doc_id": row, "resps": [reply], "filtered_resps": [reply]})
        metadata = {"data": provenance("mediconfusion")}
        results["results"][task] = {"alias": task, "set_accuracy,reference": 0.5}
        results["configs"][task] = {"task": task, "metadata": metadata}
        results["n-samples"][task] = {"original": len(lines), "effective": len(lines)}
        if samples:
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"20260102_030405_samples_{task}.jsonl").write_text(text)
    (folder / "20260102_030405_results.json").write_text(json.dumps(results))
    return folder
