"""Build the report of a MediConfusion run in a fresh process: seconds and megabytes, against embedding the files.

    python benchmarks/report_building.py DATA

DATA is a clone of the benchmark with its images, as for 'medtasks data prepare mediconfusion --source DATA'. Replies
are made up: two models, right with a probability of 0.7 and 0.5, three tasks each.
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
AIM_SECONDS, AIM_SIZE = 10, 25


def command(*arguments: str, home: Path) -> float:
    """Run medtasks in a fresh process and return its wall time in seconds."""
    start = time.perf_counter()
    environment = {**os.environ, "MEDTASKS_HOME": str(home)}
    subprocess.run([sys.executable, "-m", "medtasks.cli.main", *arguments], env=environment, check=True)
    return time.perf_counter() - start


def write_run(folder: Path, home: Path, skill: float, seed: int) -> None:
    """Write what the harness leaves of a made-up model."""
    os.environ["MEDTASKS_HOME"] = str(home)
    from medtasks.data.prepared import provenance
    from medtasks.data.store import load_documents

    folder.mkdir()
    chance = random.Random(seed)
    results = {"results": {}, "configs": {}, "n-samples": {}, "config": {"model": folder.name, "model_args": ""}}
    documents = load_documents("mediconfusion")
    for task in TASKS:
        with (folder / f"20260102_030405_samples_{task}.jsonl").open("w") as stream:
            for row, document in enumerate(documents):
                right = chance.random() < skill
                chosen = document["answer"] if right else {"A": "B", "B": "A"}[document["answer"]]
                confident = 1 / (1 + math.exp(-chance.random() * 4))
                losses = [-math.log(confident if letter == chosen else 1 - confident) for letter in "AB"]
                reply = [chosen] if task == "mediconfusion" else [[f"({loss}, False)"] for loss in losses]
                line = {"doc_id": row, "resps": reply, "filtered_resps": reply, "input": document["question"]}
                stream.write(json.dumps(line) + "\n")
        results["results"][task] = {"alias": task}
        results["configs"][task] = {"task": task, "metadata": {"data": provenance("mediconfusion")}}
        results["n-samples"][task] = {"original": len(documents), "effective": len(documents)}
    (folder / "20260102_030405_results.json").write_text(json.dumps(results))


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
        compared = command("report", str(better), "--against", str(worse), home=home)
        files = list((home / "datasets" / "mediconfusion" / "images").iterdir())
        embedded = sum(len(base64.b64encode(path.read_bytes())) for path in files) / 1e6
        print(
            f"three tasks of 352 questions: {alone:.1f} s (aim {AIM_SECONDS}), compared with another {compared:.1f} s"
        )
        print(f"page {size:.1f} MB (aim {AIM_SIZE}); its {len(files)} pictures embedded as they are {embedded:.1f} MB")


if __name__ == "__main__":
    main()
