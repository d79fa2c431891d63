"""Small datasets of one's own with a task each, in any family."""

import json
from collections.abc import Mapping
from typing import Any

from PIL import Image

from medtasks.data.catalogue import Access
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import publish, work_folder
from medtasks.data.images.decoding import ImageStore
from medtasks.data.schema import Columns, arrow_schema
from medtasks.home import own_tasks_folder


def publish_own(name: str, columns: Columns, rows: list[dict[str, Any]], access: str = "public") -> None:
    """Publish a dataset whose columns are empty where a row does not fill them."""
    with work_folder(name, Access(access)) as work:
        images = ImageStore(work)
        documents = []
        for number, row in enumerate(rows):
            image = images.add_pixels(Image.new("RGB", (8, 8), (number, 0, 0)))
            empty: dict[str, Any] = {column: [] if isinstance(kind, list) else None for column, kind in columns.items()}
            own = {"doc_id": f"d{number}", "dataset": name, "image_files": [image.file], "image_sha256": [image.sha256]}
            documents.append({**empty, **own, **row})
        facts: dict[str, Any] = dict.fromkeys(("source", "revision", "text_sha256", "pixels_sha256"), "made up")
        number = len(rows)
        manifest = Manifest(name=name, access=access, sample=False, complete=True, rows=number, images=number, **facts)
        publish(work, manifest, documents, arrow_schema(columns))


def write_task(name: str, hook: str, rules: Mapping[str, str], metrics: str = "METRIC_LIST", **more: Any) -> None:
    """Write the file of a task that reads texts; ``more`` is its metadata."""
    reads = "function: !function medtasks.hooks.filters.ReadWith"
    pipelines = "".join(f"  - {{name: {one}, filter: [{{{reads}, rule: {rule}}}]}}\n" for one, rule in rules.items())
    metadata = {"version": 1, "description": "made up", "dataset": name, **more}
    own_tasks_folder().mkdir(parents=True, exist_ok=True)
    (own_tasks_folder() / f"{name}.yaml").write_text(
        f"task: {name}\n"
        f"dataset_path: !function medtasks.data.path_of.{name}\n"
        f"metadata: {json.dumps(metadata)}\n"
        "output_type: generate_until\n"
        f"process_results: !function medtasks.hooks.{hook}.process_results\n"
        f"metric_list: !function medtasks.hooks.{hook}.{metrics}\n"
        f"filter_list:\n{pipelines}"
    )
