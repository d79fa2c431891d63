"""Folders as the harness leaves them, in its own format, and small datasets with a task each, in any family."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import provenance
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import publish, work_folder
from medtasks.data.images.image_store import ImageStore
from medtasks.data.schema import Columns, arrow_schema
from medtasks.extract.failure import cut_reply
from medtasks.families.family import Reply, Rule
from medtasks.home import own_tasks_folder
from medtasks.runs.logged_samples import LoggedSample
from medtasks.runs.reply_envelope import make_envelope
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolve_names

STAMP = "20260301_101500"

Replies = Mapping[str, Reply]
Sample = tuple[int, Mapping[str, Any], Reply, list[Any], LoggedSample]


def texts(replies: Mapping[str, str]) -> dict[str, Reply]:
    return {doc_id: Reply(text=reply) for doc_id, reply in replies.items()}


def write_run(
    folder: Path,
    replies: Mapping[str, Replies],
    *,
    stamp: str = STAMP,
    limit: int | None = None,
    log_samples: bool = True,
    predict_only: bool = False,
    rows: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write what the harness writes after a run over these tasks; return the results file.

    Scores are computed by the tasks' aggregations, but for tasks that have a row given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = {"tasks": ",".join(replies), "timezone": "Asia/Singapore"}
    names = ("results", "configs", "versions", "higher_is_better", "n-samples")
    content: dict[str, Any] = {name: {} for name in names} | {
        "group_subtasks": {task: [] for task in replies},
        "n-shot": dict.fromkeys(replies, 0),
        "config": {
            "model": "made_up",
            "model_args": "",
            "limit": limit,
            "offset": 0,
            "resolved_cli_args": options,
        },
        "lmms_eval_version": "0.7.3",
        "date": stamp,
    }
    for name, given in replies.items():
        task, config = task_file(name), task_config(name)
        samples = {row: list(_samples(name, given, task.rows[row])) for row in task.rows}
        if log_samples:
            logged = [
                _line(*sample, predict_only) for of_row in samples.values() for sample in of_row
            ]
            (folder / f"{stamp}_samples_{name}.jsonl").write_text(
                "".join(logged), encoding="utf-8"
            )
        bypassed = (
            {"alias": name, **{f"bypass,{row}": 999 for row in task.rows}}
            if predict_only
            else None
        )
        content["results"][name] = (rows or {}).get(name) or bypassed or _scores(name, samples)
        shown = {
            key: config[key] for key in ("task", "output_type", "filter_list") if key in config
        }
        metadata = {**config["metadata"], "data": provenance(config["metadata"]["dataset"])}
        content["configs"][name] = json.loads(json.dumps({**shown, "metadata": metadata}))
        content["versions"][name] = config["metadata"]["version"]
        metrics = resolve_names(config["metric_list"])
        content["higher_is_better"][name] = {
            one["metric"]: one["higher_is_better"] for one in metrics
        }
        total = len(task_documents(task))
        content["n-samples"][name] = {
            "original": total,
            "effective": min(limit or total, total),
        }
    path = folder / f"{stamp}_results.json"
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return path


def _scores(name: str, samples: Mapping[str, list[Sample]]) -> dict[str, Any]:
    """Return the row of a task: every metric of its list by its own aggregation, as the harness calls it."""
    task = task_file(name)
    shown: dict[str, Any] = {"alias": name}
    for row, of_row in samples.items():
        logged = [dict(sample.items()) for *_, sample in of_row]
        for metric in task.metric_list.resolve() if task.metric_list else []:
            shown[f"{metric['metric']},{row}"] = metric["aggregation"](
                [one[metric["metric"]] for one in logged]
            )
            shown.setdefault(f"{metric['metric']}_stderr,{row}", "N/A")
            shown[f"{metric['metric']}_stderr_clt,{row}"] = "N/A"
    return shown


def _samples(name: str, replies: Replies, row: Rule) -> Iterator[Sample]:
    """Yield the documents that were answered, with what the row's filter makes of the reply and the hook of that."""
    hook = resolve_names(task_config(name)["process_results"])
    for number, document in enumerate(task_documents(task_file(name))):
        if (reply := replies.get(document["doc_id"])) is not None:
            results: list[Any] = [make_envelope(_text(reply), row)]
            if reply.losses is not None:
                results = [
                    {"rule": row.extractor, "loss": loss, "is_greedy": False}
                    for loss in reply.losses
                ]
            yield number, document, reply, results, hook(document, results)


def _text(reply: Reply) -> str:
    return cut_reply(reply.text or "") if reply.cut else reply.text or ""


def _line(
    number: int,
    document: Mapping[str, Any],
    reply: Reply,
    results: list[Any],
    logged: LoggedSample,
    predict_only: bool,
) -> str:
    likelihoods = [[f"({loss}, False)"] for loss in reply.losses or ()]
    written: dict[str, Any] = {
        "doc_id": number,
        "target": str(document.get("answer")),
        "resps": likelihoods or [_text(reply)],
        "filtered_resps": [str(result) for result in results] if likelihoods else results[0],
        "token_counts": [None],
        "doc_hash": "74234e98",
        "input_media": [],
        "input": f"Asked: {document.get('question')}",
    }
    sample: Mapping[str, Any] = {"bypass": 0} if predict_only else logged
    written.update(sample)  # a withheld sample overwrites what is above, as in the harness
    if "doc" in sample and not likelihoods:
        written["resps"] = written["resps"][0]
    written.pop("doc", None)
    written.pop("arguments", None)
    return json.dumps(written, default=str, ensure_ascii=False) + "\n"


def publish_own(
    name: str, columns: Columns, rows: list[dict[str, Any]], access: str = "public"
) -> None:
    """Publish a dataset whose columns are empty where a row does not fill them."""
    with work_folder(name, Access(access)) as work:
        images = ImageStore(work)
        documents = []
        for number, row in enumerate(rows):
            image = images.add_pixels(Image.new("RGB", (8, 8), (number, 0, 0)))
            empty: dict[str, Any] = {
                column: [] if isinstance(kind, list) else None
                for column, kind in columns.items()
            }
            own = {
                "doc_id": f"d{number}",
                "dataset": name,
                "image_files": [image.file],
                "image_sha256": [image.sha256],
            }
            documents.append({**empty, **own, **row})
        facts: dict[str, Any] = dict.fromkeys(
            ("source", "revision", "text_sha256", "pixels_sha256"), "made up"
        )
        number = len(rows)
        manifest = Manifest(
            name=name,
            access=access,
            sample=False,
            complete=True,
            rows=number,
            images=number,
            **facts,
        )
        publish(work, manifest, documents, arrow_schema(columns))


def write_task(name: str, hook: str, rules: Mapping[str, str], **more: Any) -> None:
    """Write the file of a task that reads texts; ``more`` is its metadata."""
    reads = "function: !function medtasks.hooks.filters.ReadWith"
    pipelines = "".join(
        f"  - {{name: {one}, filter: [{{{reads}, rule: {rule}}}]}}\n"
        for one, rule in rules.items()
    )
    metadata = {"version": 1, "description": "made up", "dataset": name, **more}
    own_tasks_folder().mkdir(parents=True, exist_ok=True)
    (own_tasks_folder() / f"{name}.yaml").write_text(
        f"task: {name}\n"
        f"dataset_path: !function medtasks.data.path_of.{name}\n"
        f"metadata: {json.dumps(metadata)}\n"
        "output_type: generate_until\n"
        f"process_results: !function medtasks.hooks.{hook}.process_results\n"
        f"metric_list: !function medtasks.hooks.{hook}.METRIC_LIST\n"
        f"filter_list:\n{pipelines}"
    )
