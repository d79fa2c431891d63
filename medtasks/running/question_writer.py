"""Questions of a task in files: JSON Lines with image files next to them, or requests of OpenAI's batch interface.

Called by ``medtasks questions``. The files may leave this machine, so that ids which could name a patient are hidden
in them, and they are only written if the data's access level permits it.
"""

import contextlib
import csv
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Document
from medtasks.errors import MedTasksError, one_line
from medtasks.home import make_folder, owner_only
from medtasks.lmms.evaluation import datasets_of
from medtasks.lmms.remote_models import check_question_files
from medtasks.lmms.task_questions import (
    TaskQuestion,
    check_generates,
    generation_settings,
    harness_task,
    questions_of,
)
from medtasks.model_adapters.base.batching import read_settings
from medtasks.prompts.messages import data_url, png, with_image_urls
from medtasks.runs.question_manifest import MANIFEST, QuestionManifest
from medtasks.tasks.documents import check_possible, private_datasets, task_documents
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import included_option
from medtasks.tasks.task_index import Config

MODEL = "MODEL"
"""Placeholder for the model's name in a request."""
_LINES = "questions.jsonl"
_IMAGES = "images"
_ENDPOINT = "/v1/chat/completions"
_CUSTOM_ID = re.compile(r"[ -~]{1,64}")  # what every service takes as the name of a request
_MOST_REQUESTS = 50_000  # in a file, as is the next one
_MOST_BYTES = 200 * 10**6
# Settings with a field in requests.
_MAPPED = {"max_new_tokens", "temperature", "do_sample", "top_p", "until"}

_README = """# Questions of {task}

{content}

Have every question answered, next to these files. Reasoning comes before a reply as `<think>...</think>`, or is left
out. Models that reason need more tokens than the task's own limit.

{loop}

Score the replies where the data are prepared; samples without a reply are counted, and are in no score:

```sh
medtasks score {command}
```

Leave `{manifest}` next to the replies: by it `medtasks score` refuses replies to other data or prompts.
Note the model, its revision and precision, and the date there, too.
"""
_OF_LINES = """`{lines}` has {samples} of {samples_of_task} questions, one a line:

- `doc_id`: name of the question
- `messages`: the conversation in OpenAI's form; URLs of images are paths in this folder
- `generation`: decoding settings of the task
- `text`, `images`: the same prompt for models without a chat template, which get the images apart"""
_LOOP = """```python
import json

with open("{lines}", encoding="utf-8") as questions, open("replies.jsonl", "w", encoding="utf-8") as replies:
    for line in questions:
        question = json.loads(line)
        reply = answer(question["messages"], question["generation"])  # None if it fails, "" for an empty reply
        replies.write(json.dumps({{"doc_id": question["doc_id"], "reply": reply}}) + "\\n")
```

`answer` is your model. Templates of transformers take an image as `{{"type": "image", "path": ...}}`."""
_OF_REQUESTS = """`requests_001.jsonl` and so on have {samples} of {samples_of_task} questions, as requests to
`{endpoint}` with the images in them. `custom_id` names the question; `model` is `{model}`.{notes}"""
_BATCH = """```sh
vllm run-batch -i requests_001.jsonl -o replies_001.jsonl --model NAME --served-model-name {model}
```

For a service with OpenAI's batch interface, put its name for the model in place of `{model}`, send each file, and save
each output (and error file) here as `replies_001.jsonl` and so on. Models that reason refuse `temperature` and `stop`:
take them out."""


NamedQuestion = tuple[str, TaskQuestion]
"""Name in files, and the question of a task."""


def write_questions(
    task: TaskFile,
    folder: Path,
    *,
    batch: bool = False,
    limit: int | None = None,
) -> QuestionManifest:
    """Write the questions of a task into a new folder, with a description and a page that says how to go on.

    Args:
        task: Task, few-shot twin or variant whose replies are texts.
        folder: Folder that does not exist, or is empty.
        batch: Write requests of OpenAI's batch interface, with the images in them, in place of lines and image files.
        limit: Number of questions, the first ones; None for all.

    Raises:
        ModelRefused: The data are credentialed, and the user has not permitted it.
        MedTasksError: The task cannot be asked by files, a prompt cannot be made, or the folder is not empty.
    """
    check_generates(task)
    check_possible(task)
    built = harness_task(task)
    is_guarded = check_question_files(datasets_of({task.name: built}, {task.name: built}))
    documents = task_documents(task)
    hides_ids = bool(private_datasets(task, documents))
    _check_new(folder)

    def name_of(doc_id: str) -> str:
        is_hidden = hides_ids or (batch and not _CUSTOM_ID.fullmatch(doc_id))
        return hidden_id("doc", doc_id) if is_hidden else doc_id

    named = _named_questions(task, built, documents, name_of, limit, quotes=not is_guarded)
    with owner_only() if is_guarded else contextlib.nullcontext():
        make_folder(folder)
        try:
            write = _write_requests if batch else _write_lines
            settings = generation_settings(built)
            samples, files = write(folder, named, settings)
            manifest = QuestionManifest.of(task, documents, samples, files)
            renamed = []  # ids that no request can have as its name
            for document in documents:
                doc_id = str(document["doc_id"])
                if not hides_ids and name_of(doc_id) != doc_id:
                    renamed.append((name_of(doc_id), doc_id))
            if renamed:
                with (folder / "ids.csv").open("w", encoding="utf-8", newline="") as file:
                    csv.writer(file).writerows([("custom_id", "doc_id"), *renamed])
            page = _page(manifest, settings, batch=batch)
            (folder / "README.md").write_text(page, encoding="utf-8")
            (folder / MANIFEST).write_text(manifest.as_text(), encoding="utf-8")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # a part would pass as the whole
            raise
    return manifest


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MedTasksError(f"{folder} is not empty; name a new folder, or delete it first")


def _named_questions(
    task: TaskFile,
    built: Any,
    documents: Sequence[Document],
    name_of: Callable[[str], str],
    limit: int | None,
    *,
    quotes: bool,
) -> Iterator[NamedQuestion]:
    """Yield the questions of a harness's task, with their names.

    Args:
        task: The task.
        built: The harness's object of it.
        documents: All documents of the task.
        name_of: Function from an id to the name in files.
        limit: Number of questions, the first ones; None for all.
        quotes: Whether messages may quote errors, which may repeat text of a sample.

    Raises:
        MedTasksError: A prompt cannot be made.
    """
    try:
        for question in questions_of(built, limit):
            yield name_of(str(documents[question.row]["doc_id"])), question
    except (MedTasksError, OSError):
        raise
    except Exception as error:
        cause = one_line(error) if quotes else type(error).__name__
        raise MedTasksError(
            f"a prompt of '{task.name}' cannot be made ({cause}); fix the task's own code"
        ) from error


# ---- lines and image files ----


def _write_lines(
    folder: Path,
    named: Iterator[NamedQuestion],
    settings: Config,
) -> tuple[int, tuple[str, ...]]:
    """Write a line for each question, and each image once. Return the number of questions and the name of the file."""
    samples = 0
    with (folder / _LINES).open("w", encoding="ascii", newline="\n") as lines:
        for name, question in named:
            urls = [_image_file(folder, image) for image in question.images]
            line = {
                "doc_id": name,
                "messages": with_image_urls(question.messages, urls),
                "generation": dict(settings),
                "text": question.text,
                "images": [_image_file(folder, image) for image in question.text_images],
            }
            lines.write(json.dumps(line) + "\n")
            samples += 1
    return samples, (_LINES,)


def _image_file(folder: Path, image: Image.Image) -> str:
    """Write an image unless one with equal pixels is there, and return its path in the folder."""
    visible_image = image.convert("RGB")
    digest = hashlib.sha256(f"{visible_image.size}".encode() + visible_image.tobytes())
    name = f"{_IMAGES}/{digest.hexdigest()[:20]}.png"
    path = folder / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(visible_image))
    return name


# ---- requests of OpenAI's batch interface ----


def _write_requests(
    folder: Path,
    named: Iterator[NamedQuestion],
    settings: Config,
) -> tuple[int, tuple[str, ...]]:
    """Write requests into files of a size that services take.

    Args:
        folder: Folder for the files.
        named: Questions with their names.
        settings: Decoding settings of the task.

    Returns:
        The number of questions, and the names of the files, none if there are no questions.

    Raises:
        MedTasksError: A request is larger than a file may be.
    """
    parsed = read_settings(settings, max_new_tokens=1)
    fields: dict[str, Any] = {"temperature": parsed.temperature}
    # Without those that change nothing.
    if settings.get("max_new_tokens") is not None:
        fields["max_completion_tokens"] = parsed.max_new_tokens
    if parsed.until:
        fields["stop"] = list(parsed.until)
    if parsed.temperature > 0 and parsed.top_p < 1:
        fields["top_p"] = parsed.top_p
    samples = 0
    names: list[str] = []
    with contextlib.ExitStack() as opened:
        requests = size = 0
        for name, question in named:
            line = _request_line(name, question, fields)
            if not names or requests == _MOST_REQUESTS or size + len(line) > _MOST_BYTES:
                opened.close()
                names.append(f"requests_{len(names) + 1:03}.jsonl")
                file = opened.enter_context((folder / names[-1]).open("wb"))
                requests = size = 0
            file.write(line)
            requests += 1
            size += len(line)
            samples += 1
    return samples, tuple(names)


def _request_line(name: str, question: TaskQuestion, fields: Config) -> bytes:
    """Return a question as one line of a file of requests.

    Args:
        name: Name of the question in files.
        question: The question.
        fields: Decoding settings under the names of the batch interface.

    Raises:
        MedTasksError: The line is larger than a file may be.
    """
    messages = with_image_urls(question.messages, list(map(data_url, question.images)))
    body = {"model": MODEL, "messages": messages, **fields}
    request = {"custom_id": name, "method": "POST", "url": _ENDPOINT, "body": body}
    line = json.dumps(request).encode("ascii") + b"\n"
    if len(line) > _MOST_BYTES:
        raise MedTasksError(
            f"the request for sample {name} has {len(line):,} bytes, and services take {_MOST_BYTES:,} in a file; "
            f"write the questions without --format openai-batch"
        )
    return line


# ---- the page ----


def _page(manifest: QuestionManifest, settings: Config, *, batch: bool) -> str:
    """Return the page that says what is in a folder of questions, and how to go on."""
    replies = "replies.jsonl"
    content = _OF_LINES
    loop = _LOOP
    if batch:
        replies = "replies_*.jsonl"
        content = _OF_REQUESTS
        loop = _BATCH
    unmapped = []
    for name, value in settings.items():
        if name not in _MAPPED and value not in (None, 1):
            unmapped.append(f"{name}: {value}")
    notes = ""
    if unmapped:
        notes = (
            f" Settings of the task that the interface does not have: {', '.join(unmapped)}."
        )
    content = content.format(
        lines=_LINES,
        endpoint=_ENDPOINT,
        model=MODEL,
        notes=notes,
        samples=manifest.samples,
        samples_of_task=manifest.samples_of_task,
    )
    return _README.format(
        task=manifest.task,
        content=content,
        loop=loop.format(lines=_LINES, model=MODEL),
        command=f"{manifest.task} {replies}{included_option(manifest.task)}",
        manifest=MANIFEST,
    )
