"""Pages: each one HTML file that opens from disk, without a server and without the network.

The data of a run's audit browser is in its page as JSON that is safe inside HTML.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from medtasks import __version__
from medtasks.audit.report import report_tables, task_tables, wording
from medtasks.audit.report.contents import RunReport, TaskReport, as_json
from medtasks.audit.report.thumbnails import Thumbnails, thumbnails
from medtasks.audit.report.wording import REASONS, anchor
from medtasks.data.images.decoding import Decoding
from medtasks.errors import MedTasksError
from medtasks.families.family import ReadAnswer
from medtasks.home import written_whole

_TEMPLATES = "templates"
_FILTERS = (wording.number, wording.count, wording.counted, wording.moment, wording.anchor)
_INSIDE_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def write_page(report: RunReport, path: Path, figures: Mapping[str, str] | None = None) -> None:
    """Write a report as one HTML file.

    The file loads nothing: style, script, images and data are inside, and its content security policy forbids
    everything else, scripts in a model's reply included. It appears complete or not at all; its folder must exist.
    ``figures`` are SVG elements by key, see :mod:`medtasks.audit.report.figures.drawing`; tables show the same numbers
    without them. MedTasksError: the file cannot be written.
    """
    from markupsafe import Markup

    files_shown, decodings, without_file = _images(report)
    images = thumbnails(files_shown, decodings=decodings)
    page = rendered(
        "page",
        report=report,
        figures={key: Markup(figure) for key, figure in (figures or {}).items()},
        pictures=images,
        unreadable=images.unreadable + without_file,
        style=Markup(own_text("page.css")),
        data=Markup(json_in_html(audit_data(report, images))),
        uris=Markup(json_in_html([image.uri for image in images.by_file.values()])),
        report_tables=report_tables,
        task_tables=task_tables,
        wording=wording,
    )
    write_whole(path, page)


def rendered(name: str, **values: Any) -> str:
    """Return a page of our templates, which escape every value and take no undefined one.

    The template and the page's only script have the same name; the template may use ``version``, ``script`` and
    ``policy`` besides the values.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("medtasks.audit.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({function.__name__: function for function in _FILTERS})
    script = own_text(f"{name}.js")
    # Only our own script runs, and nothing is loaded.
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    rules = ("default-src 'none'", f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'", "img-src data:")
    policy = "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))
    page: str = environment.get_template(f"{name}.html").render(
        version=__version__, script=Markup(script), policy=policy, **values
    )
    return page


def own_text(name: str) -> str:
    """Return the text of a file in the folder of the templates."""
    return files("medtasks.audit.report").joinpath(_TEMPLATES, name).read_text(encoding="utf-8")


def write_whole(path: Path, text: str, option: str = "--html") -> None:
    """Write a page, which appears complete or not at all; MedTasksError: it cannot be written.

    ``option`` is what names another file on the command line.
    """
    try:
        path.parent.stat()  # a missing folder is more likely a slip than to be created
        with written_whole(path) as page:
            # Half of a surrogate pair, which a group's name may hold, is no UTF-8.
            page.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise MedTasksError(
            f"cannot write the page {path}: {error.strerror or error}; make room, or name a file in another folder "
            f"with {option}"
        ) from error


def json_in_html(value: Any) -> str:
    r"""Return a value of JSON types, with finite numbers, as ASCII without a character that HTML takes for markup.

    Example:
        >>> json_in_html({"reply": "</script>"})
        '{"reply":"\\u003c/script\\u003e"}'
    """
    # A reply may hold half of a surrogate pair, which UTF-8 cannot; ASCII can. It also hides U+2028 from JavaScript.
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_INSIDE_HTML)


def _images(report: RunReport) -> tuple[list[Path], dict[Path, Decoding], int]:
    """Return the image files of all items, the decodings that their tasks set, and the number of missing files."""
    files: dict[Path, None] = {}
    decodings: dict[Path, Decoding] = {}
    without_file = set()
    for task in report.tasks:
        if task.decoding:
            decodings |= dict.fromkeys(task.pictures.values(), task.decoding)
        for key in () if task.withheld else (key for item in task.items for key in item.images):
            if key in task.pictures:
                files[task.pictures[key]] = None
            else:
                without_file.add((task.name, key))
    return list(files), decodings, len(without_file)


def audit_data(report: RunReport, images: Thumbnails) -> dict[str, Any]:
    """Return the items of a report as JSON types.

    Texts and images are listed once and items name them by position, as pairs share question, options and mostly the
    prompt. Items of a withheld task have ids, answers, losses and groups only. Answers and groups of ``items`` are in
    the order of the task's ``rules`` and ``columns``.
    """
    texts = _Numbered()
    position = {file: number for number, file in enumerate(images.by_file)}
    items = [entry for number, task in enumerate(report.tasks) for entry in _items(number, task, texts, position)]
    sizes = [[image.width, image.height, image.remark] for image in images.by_file.values()]
    return {
        "texts": list(texts),
        "pictures": [*sizes, [0, 0, "its file is missing"]],
        "side": images.side,
        "reasons": {str(reason): list(words) for reason, words in REASONS.items()},
        "tasks": [
            {
                "name": task.name,
                "anchor": anchor(task.name),
                "withheld": task.withheld,
                "sample": task.sample_data,
                "rules": [rule.name for rule in task.rules],
                "columns": _columns(task),
            }
            for task in report.tasks
        ],
        "items": items,
    }


class _Numbered(dict[str, int]):
    """Texts by the order in which they were first asked for."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _columns(task: TaskReport) -> list[str]:
    return list(dict.fromkeys(column for item in task.items for column in item.groups))


def _items(
    number: int, task: TaskReport, texts: Mapping[str, int], position: Mapping[Path, int]
) -> Iterator[dict[str, Any]]:
    rules, columns = [rule.name for rule in task.rules], _columns(task)
    pictures = {key: position.get(file, len(position)) for key, file in task.pictures.items()}
    for item in task.items:
        entry: dict[str, Any] = {
            "t": number,
            "id": item.doc_id,
            "u": item.unit,
            "l": [as_json(loss) for loss in item.losses],
            "a": [_answer(item.answers.get(rule), item.options) for rule in rules],
            "g": [list(item.groups.get(column, ())) for column in columns],
        }
        if not task.withheld:
            entry |= {
                "i": [pictures.get(key, len(position)) for key in item.images],
                "q": texts[item.question],
                "o": [texts[option] for option in item.options],
                "p": texts[item.prompt],
                "k": item.key,
                "c": named_options(item.key, item.options),
                "r": texts[item.reply],
                "f": list(item.facts),
            }
        yield entry


def _answer(answer: ReadAnswer | None, options: Sequence[str]) -> list[Any] | None:
    if answer is None:
        return None
    named = named_options(answer.value or "", options)
    return [answer.value, answer.reason, answer.right, as_json(answer.score), named]


def named_options(answer: str, options: Sequence[str]) -> list[int]:
    """Return the options that an answer names, by one or several letters or by the whole text.

    Example:
        >>> named_options("B", ["Left", "Right"]), named_options("A, B", ["Left", "Right"])
        ([1], [0, 1])
        >>> named_options("right", ["Left", "Right"]), named_options("unknown", ["Left", "Right"])
        ([1], [])
    """
    by_letter = {chr(ord("A") + number): number for number in range(len(options))}
    letters = re.findall(r"[^\s,;]+", answer)
    if letters and all(letter in by_letter for letter in letters):
        return sorted({by_letter[letter] for letter in letters})
    return [number for number, option in enumerate(options) if option.casefold() == answer.casefold()]
