"""Folders as the harness leaves them: results file and samples files, written in its own format."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.hooks.withheld import WithheldSample

from medtasks.audit.scoring import samples_of
from medtasks.data.provenance_of import provenance
from medtasks.families.family import Reply
from medtasks.harness.documents import task_documents
from medtasks.harness.task_files import task_config, task_file
from medtasks.harness.task_index import resolved

STAMP = "20260301_101500"
MODEL = "made_up"

Replies = Mapping[str, Reply]


def texts(replies: Mapping[str, str]) -> dict[str, Reply]:
    return {doc_id: Reply(text=reply) for doc_id, reply in replies.items()}


def write_run(
    folder: Path,
    replies: Mapping[str, Replies],
    *,
    stamp: str = STAMP,
    model: str = MODEL,
    model_args: str = "",
    limit: int | None = None,
    log_samples: bool = True,
    predict_only: bool = False,
    rows: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write what the harness writes after a run over these tasks; return the results file.

    Scores are computed by the tasks' aggregations, but for tasks that have a row given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = {task: sample_lines(task, given, predict_only=predict_only) for task, given in replies.items()}
    content: dict[str, Any] = {
        "results": {},
        "group_subtasks": {task: [] for task in replies},
        "configs": {},
        "versions": {},
        "n-shot": dict.fromkeys(replies, 0),
        "higher_is_better": {},
        "n-samples": {},
        "config": {
            "model": model,
            "model_args": model_args,
            "batch_size": 1,
            "device": "cpu",
            "limit": limit,
            "offset": 0,
            "random_seed": 0,
            "resolved_cli_args": {"tasks": ",".join(replies), "timezone": "Asia/Singapore"},
        },
        "lmms_eval_version": "0.7.3",
        "date": stamp,
        "total_evaluation_time_seconds": "1.5",
    }
    for task, given in replies.items():
        config = task_config(task)
        shown = {name: config[name] for name in ("task", "output_type", "filter_list", "metadata") if name in config}
        metrics = resolved(config["metric_list"])
        total = len(task_documents(task_file(task)))
        content["results"][task] = (rows or {}).get(task) or (bypassed(task) if predict_only else scores(task, given))
        content["configs"][task] = json.loads(
            json.dumps({**shown, "metadata": {**shown["metadata"], "data": provenance(config["metadata"]["dataset"])}})
        )
        content["versions"][task] = config["metadata"]["version"]
        content["higher_is_better"][task] = {one["metric"]: one["higher_is_better"] for one in metrics}
        content["n-samples"][task] = {"original": total, "effective": min(limit or total, total)}
    path = folder / f"{stamp}_results.json"
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    for task in replies if log_samples else ():
        (folder / f"{stamp}_samples_{task}.jsonl").write_text("".join(lines[task]), encoding="utf-8")
    return path


def scores(task_name: str, replies: Replies) -> dict[str, Any]:
    """Return the row of a task: every metric of its list by its own aggregation, as the harness calls it."""
    task = task_file(task_name)
    documents = [one for one in task_documents(task) if one["doc_id"] in replies]
    row: dict[str, Any] = {"alias": task_name}
    for name in task.rules:
        samples = samples_of(task, name, documents, [replies[one["doc_id"]] for one in documents])
        for metric in task.metric_list.resolve() if task.metric_list else []:
            values = [dict(sample.items())[metric["metric"]] for sample in samples]
            row[f"{metric['metric']},{name}"] = metric["aggregation"](values)
            row.setdefault(f"{metric['metric']}_stderr,{name}", "N/A")
            row[f"{metric['metric']}_stderr_clt,{name}"] = "N/A"
    return row


def bypassed(task_name: str) -> dict[str, Any]:
    return {"alias": task_name, **{f"bypass,{name}": 999 for name in task_file(task_name).rules}}


def sample_lines(task_name: str, replies: Replies, *, predict_only: bool = False) -> list[str]:
    """Return the lines of a samples file: every document once per filter, a copy of its record per metric."""
    task = task_file(task_name)
    lines = []
    documents = task_documents(task)
    asked = [(row, one) for row, one in enumerate(documents) if one["doc_id"] in replies]
    for name, rule in task.rules.items():
        given = [replies[one["doc_id"]] for _, one in asked]
        samples = samples_of(task, name, [one for _, one in asked], given)
        for (row, document), reply, sample in zip(asked, given, samples, strict=True):
            lines.append(_line(row, document, reply, rule, {"bypass": 0} if predict_only else sample))
    return lines


def _line(row: int, document: Mapping[str, Any], reply: Reply, rule: str, sample: Mapping[str, Any]) -> str:
    if reply.losses is None:
        resps: Any = [reply.text]
        filtered: Any = json.dumps({"rule": rule, "reply": reply.text})
    else:
        resps = [[f"({loss}, False)"] for loss in reply.losses]
        filtered = [str({"rule": rule, "loss": loss, "is_greedy": False}) for loss in reply.losses]
    written = {
        "doc_id": row,
        "target": str(document.get("answer")),
        "resps": resps,
        "filtered_resps": filtered,
        "token_counts": [None],
        "doc_hash": "74234e98",
        "input_media": [],
        "input": f"Asked: {document.get('question')}",
    }
    written.update(sample)  # a withheld sample overwrites what is above, as in the harness
    if isinstance(sample, WithheldSample) or "doc" in written:
        written["input"] = written.pop("arguments", ["?"])[0] if "arguments" in written else written["input"]
        written.pop("doc", None)
        written["resps"] = written["resps"][0] if reply.losses is None and "[[" in str(written["resps"]) else resps
    return json.dumps(written, default=str, ensure_ascii=False) + "\n"


def rows_of(report: Any) -> Any:
    """Return a value with every NaN as None, so that equal values compare equal."""
    if isinstance(report, float) and math.isnan(report):
        return None
    if isinstance(report, Mapping):
        return {key: rows_of(value) for key, value in report.items()}
    if isinstance(report, Sequence) and not isinstance(report, str):
        return [rows_of(value) for value in report]
    return report
