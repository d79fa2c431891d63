"""Build reports in a fresh process: seconds and megabytes, against embedding the files.

    python benchmarks/report_building.py DATA

DATA is a clone of MediConfusion with its images, as for 'medtasks data prepare mediconfusion --source DATA'. Replies
are made up: two models, right with a probability of 0.7 and 0.5, three tasks each; and 25,000 questions on 14 findings
of 8,334 images, also by two columns.
"""

import argparse
import base64
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASKS = ("mediconfusion", "mediconfusion_gd", "mediconfusion_ps")
AIM_SECONDS, AIM_SIZE, AIM_FINDINGS, AIM_GROUPS = 4, 25, 40, 60
FINDINGS = (
    *(
        "Atelectasis",
        "Cardiomegaly",
        "Consolidation",
        "Edema",
        "Effusion",
        "Emphysema",
        "Fibrosis",
        "Hernia",
    ),
    *("Infiltration", "Mass", "Nodule", "Pleural Thickening", "Pneumonia", "Pneumothorax"),
)
FINDINGS_TASK = """
task: own_findings
dataset_path: json
dataset_kwargs: {data_files: {test: own.jsonl}}
test_split: test
output_type: generate_until
generation_kwargs: {max_new_tokens: 16, temperature: 0, do_sample: false, until: []}
lmms_eval_specific_kwargs:
  default: {template: "{{ question }} {{ options | join(', ') }}"}
doc_to_text: !function medtasks.hooks.prompts.question
doc_to_visual: !function medtasks.hooks.images.images
doc_to_target: !function medtasks.hooks.prompts.target
process_results: !function medtasks.hooks.multilabel.process_results
metric_list: !function medtasks.hooks.multilabel.METRIC_LIST
filter_list:
  - {name: reference, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: multimedeval_labels_head}]}
  - {name: robust, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: robust_labels}]}
metadata: {version: 1}
"""


def command(*arguments: str, home: Path) -> float:
    """Run medtasks in a fresh process and return its wall time in seconds."""
    start = time.perf_counter()
    environment = {**os.environ, "MEDTASKS_HOME": str(home)}
    subprocess.run(
        [sys.executable, "-m", "medtasks.cli.main", *arguments], env=environment, check=True
    )
    return time.perf_counter() - start


def write_run(folder: Path, home: Path, skill: float, seed: int) -> None:
    """Write what the harness leaves of a made-up model."""
    os.environ["MEDTASKS_HOME"] = str(home)
    from medtasks.data.dataset_lookup import provenance
    from medtasks.data.document_store import load_documents

    folder.mkdir()
    chance = random.Random(seed)
    results = {
        "results": {},
        "configs": {},
        "n-samples": {},
        "config": {"model": folder.name, "model_args": ""},
    }
    documents = load_documents("mediconfusion")
    for task in TASKS:
        with (folder / f"20260102_030405_samples_{task}.jsonl").open("w") as stream:
            for row, document in enumerate(documents):
                right = chance.random() < skill
                chosen = (
                    document["answer"] if right else {"A": "B", "B": "A"}[document["answer"]]
                )
                confident = 1 / (1 + math.exp(-chance.random() * 4))
                losses = [
                    -math.log(confident if letter == chosen else 1 - confident)
                    for letter in "AB"
                ]
                reply = (
                    [chosen]
                    if task == "mediconfusion"
                    else [[f"({loss}, False)"] for loss in losses]
                )
                line = {
                    "doc_id": row,
                    "resps": reply,
                    "filtered_resps": reply,
                    "input": document["question"],
                }
                stream.write(json.dumps(line) + "\n")
        results["results"][task] = {"alias": task}
        results["configs"][task] = {
            "task": task,
            "metadata": {"data": provenance("mediconfusion")},
        }
        results["n-samples"][task] = {"original": len(documents), "effective": len(documents)}
    (folder / "20260102_030405_results.json").write_text(json.dumps(results))


def write_findings(folder: Path, number: int) -> None:
    """Write a task of one's own with several findings per image, and the samples of a made-up model."""
    from PIL import Image

    (folder / "run").mkdir(parents=True)
    for patient in range(-(-number // 3)):
        image = Image.new("L", (8, 8))
        image.putdata([patient >> bit & 1 for bit in range(64)])
        image.save(folder / f"{patient}.png")
    (folder / "own_findings.yaml").write_text(FINDINGS_TASK)
    chance = random.Random(0)
    with (
        (folder / "own.jsonl").open("w") as questions,
        (folder / "run" / "20260102_030405_samples_own_findings.jsonl").open("w") as samples,
    ):
        for row in range(number):
            labels = [int(chance.random() < 0.15) for _ in FINDINGS]
            known = {
                "doc_id": str(row),
                "question": "Which findings are there?",
                "options": FINDINGS,
                "labels": labels,
            }
            patient = row // 3
            known |= {"patient_id": str(patient), "image_file": f"{patient}.png"}
            known |= {"sex": "FM"[patient % 2], "site": f"hospital {patient % 5}"}
            questions.write(json.dumps(known) + "\n")
            shown = [
                name
                for name, label in zip(FINDINGS, labels, strict=True)
                if chance.random() < (0.85 if label else 0.03)
            ]
            reply = [", ".join(shown) or "No finding"]
            samples.write(
                json.dumps({"doc_id": row, "resps": reply, "filtered_resps": reply}) + "\n"
            )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    with tempfile.TemporaryDirectory() as folder:
        home, better, worse = (Path(folder) / name for name in ("home", "better", "worse"))
        command("data", "prepare", "mediconfusion", "--source", str(data), home=home)
        write_run(better, home, 0.7, 1)
        write_run(worse, home, 0.5, 2)
        page = better / "report.html"
        alone = command("report", str(better), home=home)
        size = page.stat().st_size / 1e6
        compared = command("board", str(better), str(worse), home=home)
        files = list((home / "datasets" / "mediconfusion" / "images").iterdir())
        embedded = sum(len(base64.b64encode(path.read_bytes())) for path in files) / 1e6
        print(
            f"three tasks of 352 questions: {alone:.1f} s (aim {AIM_SECONDS}), a board of two runs {compared:.1f} s"
        )
        findings = Path(folder) / "findings"
        write_findings(findings, 25_000)
        report = ("report", str(findings / "run"), "--include-path", str(findings))
        seconds, grouped = (
            command(*report, home=home),
            command(*report, "--by", "sex,site", home=home),
        )
        print(
            f"25,000 questions on {len(FINDINGS)} findings: {seconds:.1f} s (aim {AIM_FINDINGS})"
        )
        print(f"the same by sex and site: {grouped:.1f} s (aim {AIM_GROUPS})")
        print(
            f"page {size:.1f} MB (aim {AIM_SIZE}); its {len(files)} pictures embedded as they are {embedded:.1f} MB"
        )


if __name__ == "__main__":
    main()
