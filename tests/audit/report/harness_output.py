"""Folders as the harness leaves them: results file and samples files, written in its own format."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medtasks.data.dataset_lookup import provenance
from medtasks.extract.failure import cut_reply
from medtasks.families.family import Reply, Row
from medtasks.runs.logged_samples import LoggedSample
from medtasks.runs.reply_envelope import enveloped
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolved

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
        bypassed = {"alias": task, **{f"bypass,{name}": 999 for name in task_file(task).rows}}
        content["results"][task] = (rows or {}).get(task) or (bypassed if predict_only else scores(task, given))
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
    shown: dict[str, Any] = {"alias": task_name}
    for name, row in task.rows.items():
        samples = [dict(logged.items()) for _, _, _, logged in _logged_samples(task_name, replies, row)]
        for metric in task.metric_list.resolve() if task.metric_list else []:
            shown[f"{metric['metric']},{name}"] = metric["aggregation"]([one[metric["metric"]] for one in samples])
            shown.setdefault(f"{metric['metric']}_stderr,{name}", "N/A")
            shown[f"{metric['metric']}_stderr_clt,{name}"] = "N/A"
    return shown


def sample_lines(task_name: str, replies: Replies, *, predict_only: bool = False) -> list[str]:
    """Return the lines of a samples file: every document once per filter."""
    return [
        _line(number, document, replies[document["doc_id"]], results, {"bypass": 0} if predict_only else logged)
        for row in task_file(task_name).rows.values()
        for number, document, results, logged in _logged_samples(task_name, replies, row)
    ]


def _logged_samples(
    task_name: str, replies: Replies, row: Row
) -> Iterator[tuple[int, Mapping[str, Any], list[Any], LoggedSample]]:
    """Yield the documents that were answered, with what the row's filter makes of the reply and the hook of that."""
    hook = resolved(task_config(task_name)["process_results"])
    for number, document in enumerate(task_documents(task_file(task_name))):
        if (reply := replies.get(document["doc_id"])) is not None:
            results: list[Any] = [enveloped(_said(reply), row)]
            if reply.losses is not None:
                results = [{"rule": row.extractor, "loss": loss, "is_greedy": False} for loss in reply.losses]
            yield number, document, results, hook(document, results)


def _said(reply: Reply) -> str:
    return cut_reply(reply.text or "") if reply.cut else reply.text or ""


def _line(number: int, document: Mapping[str, Any], reply: Reply, results: list[Any], sample: Mapping[str, Any]) -> str:
    likelihoods = [[f"({loss}, False)"] for loss in reply.losses or ()]
    written: dict[str, Any] = {
        "doc_id": number,
        "target": str(document.get("answer")),
        "resps": likelihoods or [_said(reply)],
        "filtered_resps": [str(result) for result in results] if likelihoods else results[0],
        "token_counts": [None],
        "doc_hash": "74234e98",
        "input_media": [],
        "input": f"Asked: {document.get('question')}",
    }
    written.update(sample)  # a withheld sample overwrites what is above, as in the harness
    if "doc" in sample and not likelihoods:
        written["resps"] = written["resps"][0]
    written.pop("doc", None)
    written.pop("arguments", None)
    return json.dumps(written, default=str, ensure_ascii=False) + "\n"
