"""What the page's audit browser shows, as JSON that may stand inside HTML."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.audit.report.contents import Item, ReadAnswer, RunReport, Score, TaskReport, as_json
from medtasks.audit.report.page.thumbnails import Thumbnails
from medtasks.audit.report.rows import anchor
from medtasks.audit.report.words import REASONS
from medtasks.data.decoding import Decoding

_INSIDE_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_NO_FILE = "its file is missing"


def json_in_html(value: Any) -> str:
    r"""Return JSON in ASCII without a character that HTML could take for markup.

    Args:
        value: Of JSON types; numbers are finite.

    Example:
        >>> json_in_html({"reply": "</script>"})
        '{"reply":"\\u003c/script\\u003e"}'
    """
    # A reply may hold half of a surrogate pair, which UTF-8 cannot; ASCII can. It also hides U+2028 from JavaScript.
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_INSIDE_HTML)


def shown_images(report: RunReport) -> list[Path]:
    """Return the files of all images that items show, in the order of the items, each once."""
    tasks = [task for task in report.tasks if not task.withheld]
    files = (task.pictures.get(key) for task in tasks for item in task.items for key in item.images)
    return list(dict.fromkeys(file for file in files if file is not None))


def image_decodings(report: RunReport) -> dict[Path, Decoding]:
    """Return how images are decoded whose task says so itself."""
    return {file: task.decoding for task in report.tasks if task.decoding for file in task.pictures.values()}


def images_without_file(report: RunReport) -> int:
    """Return how many images that items name have no file."""
    tasks = [task for task in report.tasks if not task.withheld]
    return len(
        {(task.name, key) for task in tasks for item in task.items for key in item.images}
        - {(task.name, key) for task in tasks for key in task.pictures}
    )


def audit_data(report: RunReport, images: Thumbnails) -> dict[str, Any]:
    """Return the items of a report as JSON types.

    Texts are listed once and items name them by position, as pairs share question, options and mostly the prompt; the
    same goes for images. Of a withheld task only ids, answers, losses and groups are in here, whatever it holds.

    Returns:
        ``texts``; ``pictures`` (without their pixels); ``reasons`` in words; ``tasks`` with their scores as fractions;
        ``items``, whose answers and groups are in the order of the task's ``rules`` and ``columns``.
    """
    texts = _Numbered()
    position = {file: number for number, file in enumerate(images.by_file)}
    items = [entry for number, task in enumerate(report.tasks) for entry in _items(number, task, texts, position)]
    shown = [[one.width, one.height, one.remark] for one in images.by_file.values()]
    return {
        "texts": list(texts),
        "pictures": [*shown, [0, 0, _NO_FILE]],
        "side": images.side,
        "reasons": {str(reason): list(words) for reason, words in REASONS.items()},
        "tasks": [_task(task) for task in report.tasks],
        "items": items,
    }


class _Numbered(dict[str, int]):
    """Texts by the order in which they were first asked for."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _task(task: TaskReport) -> dict[str, Any]:
    return {
        "name": task.name,
        "anchor": anchor(task.name),
        "withheld": task.withheld,
        "sample": task.sample_data,
        "rules": [rule.name for rule in task.rules],
        "columns": _columns(task),
        "scores": {rule.name: [_score(score) for score in rule.scores] for rule in task.rules},
    }


def _score(score: Score) -> dict[str, Any]:
    numbers = {"value": score.value, "error": score.error, "low": score.low, "high": score.high}
    return {"metric": score.metric, **{name: as_json(number) for name, number in numbers.items()}}


def _columns(task: TaskReport) -> list[str]:
    return list(dict.fromkeys(column for item in task.items for column in item.groups))


def _items(
    number: int, task: TaskReport, texts: Mapping[str, int], position: Mapping[Path, int]
) -> Iterator[dict[str, Any]]:
    rules, columns = [rule.name for rule in task.rules], _columns(task)
    pictures = {key: position.get(file, len(position)) for key, file in task.pictures.items()}
    for item in task.items:
        found = {
            "t": number,
            "id": item.doc_id,
            "u": item.unit,
            "l": [as_json(loss) for loss in item.losses],
            "a": [_answer(item.answers.get(rule), item.options) for rule in rules],
            "g": [list(item.groups.get(column, ())) for column in columns],
        }
        yield found if task.withheld else found | _texts(item, texts, pictures, len(position))


def _texts(item: Item, texts: Mapping[str, int], pictures: Mapping[str, int], without_file: int) -> dict[str, Any]:
    return {
        "i": [pictures.get(key, without_file) for key in item.images],
        "q": texts[item.question],
        "o": [texts[option] for option in item.options],
        "p": texts[item.prompt],
        "k": item.key,
        "c": named_options(item.key, item.options),
        "r": texts[item.reply],
    }


def _answer(answer: ReadAnswer | None, options: Sequence[str]) -> list[Any] | None:
    if answer is None:
        return None
    return [
        answer.value,
        answer.reason,
        answer.right,
        as_json(answer.score),
        named_options(answer.value or "", options),
    ]


def named_options(answer: str, options: Sequence[str]) -> list[int]:
    """Return which options an answer names: by a letter, by several letters, or by the whole text.

    Example:
        >>> named_options("B", ["Left", "Right"]), named_options("A, B", ["Left", "Right"])
        ([1], [0, 1])
        >>> named_options("right", ["Left", "Right"]), named_options("unknown", ["Left", "Right"])
        ([1], [])
    """
    by_letter = {chr(ord("A") + number): number for number in range(len(options))}
    letters = re.findall(r"[^\s,;]+", answer)
    if letters and all(one in by_letter for one in letters):
        return sorted({by_letter[one] for one in letters})
    return [number for number, option in enumerate(options) if option.casefold() == answer.casefold()]
