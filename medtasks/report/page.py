"""Pages: each one HTML file that opens from disk, without a server and without the network.

The data of a run's audit browser is in its page as JSON that is safe inside HTML, and small copies of all images.
"""

import base64
import hashlib
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, count, repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any

from PIL import Image

from medtasks.data.dataset_manifest import decoding_of_file
from medtasks.data.images.decoding import Decoding, decode_for_viewing
from medtasks.data.images.strict_pillow import strict_decoding
from medtasks.data.samples import letter
from medtasks.errors import MedTasksError
from medtasks.home import as_json, written_whole
from medtasks.report import report_tables, task_tables, wording
from medtasks.report.report_model import RunReport
from medtasks.report.sentences import headline, quotable_sentences
from medtasks.runs.run_notes import moment
from medtasks.scores.score_model import AuditItem
from medtasks.version import __version__

TEMPLATES = Path(__file__).parent / "templates"
_FILTERS = (wording.number, wording.count, wording.quantity, moment, wording.anchor)
_INSIDE_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}

BUDGET = 18_000_000  # characters that all images together may take in the page
# Longer sides in pixels, from the first choice to the last.
SIDES = (512, 448, 384, 320, 256, 224, 192, 160, 128, 96)
_QUALITY = 80
_PROBED = 24  # images from which the size of all is estimated
_HEADROOM = 1.08  # the images probed may be simpler than the others
_BLOCK = 64
_WORKERS = min(8, os.cpu_count() or 1)  # each holds one whole image
LEFT_OUT = "left out to keep this file small"
_File = tuple[Path, Decoding]
_Json = dict[str, Any]


def write_page(report: RunReport, path: Path, figures: Mapping[str, str] | None = None) -> None:
    """Write a report as one HTML file.

    The file loads nothing: style, script, images and data are inside, and its content security policy forbids
    everything else, scripts in a model's reply included. It appears complete or not at all.

    Args:
        report: Contents of the report.
        path: The file. Its folder must exist.
        figures: SVG elements by key, see :mod:`medtasks.report.figures`. Tables show the same numbers without them.

    Raises:
        MedTasksError: The file cannot be written.
    """
    from markupsafe import Markup

    images, without_file = _report_thumbnails(report)
    without_picture = [image.remark for image in images.by_file.values() if not image.uri]
    left_out = without_picture.count(LEFT_OUT)
    write_rendered(
        "page",
        path,
        report=report,
        sentences=quotable_sentences(report),
        headline=headline(report),
        figures={key: Markup(figure) for key, figure in (figures or {}).items()},
        pictures=images,
        left_out=left_out,
        unreadable=len(without_picture) - left_out + without_file,
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        data=Markup(json_in_html(audit_data(report, images))),
        uris=Markup(json_in_html([image.uri for image in images.by_file.values()])),
        report_tables=report_tables,
        task_tables=task_tables,
        wording=wording,
    )


def _report_thumbnails(report: RunReport) -> tuple["Thumbnails", int]:
    """Return small copies of the images of a report that may be shown, and the number of images without a file."""
    files: dict[Path, None] = {}
    decodings: dict[Path, Decoding] = {}
    without_file = set()
    for task in report.tasks:
        if task.decoding:
            decodings |= dict.fromkeys(task.pictures.values(), task.decoding)
        if task.withheld:
            continue
        for key in chain.from_iterable(item.images for item in task.items):
            if key in task.pictures:
                files[task.pictures[key]] = None
            else:
                without_file.add((task.name, key))
    return thumbnails(files, decodings=decodings), len(without_file)


def write_rendered(name: str, path: Path, option: str = "--html", **values: Any) -> None:
    """Write a page of our templates whole or not at all.

    Templates escape every value and take no undefined one. They may use ``version``, ``script`` and ``policy``, too.

    Args:
        name: Name of the template, and of the page's only script if there is one.
        path: File of the page.
        option: Option of the command that names the file, for the error.
        **values: Values of the template.

    Raises:
        MedTasksError: The page cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
    )
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters.update({function.__name__: function for function in _FILTERS})
    file = TEMPLATES / f"{name}.js"
    script = file.read_text(encoding="utf-8") if file.is_file() else ""
    # Only our own script runs, and nothing is loaded.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{digest}'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    text = environment.get_template(f"{name}.html").render(
        version=__version__, script=Markup(script), policy="; ".join(rules), **values
    )
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
        >>> json_in_html(["</script>"])
        '["\\u003c/script\\u003e"]'
    """
    # A reply may hold half of a surrogate pair, which UTF-8 cannot; ASCII can. It also hides U+2028 from JavaScript.
    encoded = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return encoded.translate(_INSIDE_HTML)


@dataclass(frozen=True)
class Thumbnail:
    """A small copy of an image, or the reason why it is missing."""

    uri: str = ""  # JPEG as a data URI; empty if there is no image
    width: int = 0  # of the image as models see it, in pixels; 0 without an image
    height: int = 0
    remark: str = ""  # why there is no image, or the conversions of its pixels; mostly empty


@dataclass(frozen=True)
class Thumbnails:
    """Small copies of many images."""

    side: int  # their longer side at most, in pixels
    by_file: Mapping[Path, Thumbnail]  # one for every file asked for


def thumbnails(
    paths: Iterable[Path],
    budget: int = BUDGET,
    decodings: Mapping[Path, Decoding] = MappingProxyType({}),
) -> Thumbnails:
    """Return small copies of images, as models see them, that fit into a page together.

    The more images, the smaller they are. What does not fit at the smallest size is left out, the last files first.
    The result does not depend on the number of processors. Files that are missing or damaged get a remark.

    Args:
        paths: The files. One named twice is read once.
        budget: Characters that all copies together may take.
        decodings: Decoding of files that are decoded otherwise than the prepared dataset says in which they lie.
    """
    files = [
        (file, decodings.get(file) or decoding_of_file(file)) for file in dict.fromkeys(paths)
    ]
    with strict_decoding(), ThreadPoolExecutor(_WORKERS) as workers:
        for side in _likely_sides(files, budget, workers):
            copies = _copies_in_budget(files, side, budget, workers)
            if len(copies) == len(files):
                break
    copies += [Thumbnail(remark=LEFT_OUT)] * (len(files) - len(copies))
    return Thumbnails(side, dict(zip((file for file, _ in files), copies, strict=True)))


def _likely_sides(
    files: Sequence[_File],
    budget: int,
    workers: ThreadPoolExecutor,
) -> Sequence[int]:
    """Return the sides to try, at least one, from the largest at which all files are likely to fit."""
    if len(files) <= _PROBED:
        return SIDES
    probed = [files[number * len(files) // _PROBED] for number in range(_PROBED)]
    images = [image for image, _ in workers.map(_make_copy, probed, repeat(SIDES[0])) if image]
    most = budget / _HEADROOM / len(files) * _PROBED
    for position, side in enumerate(SIDES):
        if sum(len(_uri(image, side)) for image in images) <= most:
            return SIDES[position:]
    return SIDES[-1:]


def _copies_in_budget(
    files: Sequence[_File],
    side: int,
    budget: int,
    workers: ThreadPoolExecutor,
) -> list[Thumbnail]:
    """Return the small copies of the first files, as many as have room."""
    room = budget
    copies: list[Thumbnail] = []
    # In blocks, because an executor would work on all files although the room ends with one of the first.
    for start in range(0, len(files), _BLOCK):
        for _, copy in workers.map(_make_copy, files[start : start + _BLOCK], repeat(side)):
            room -= len(copy.uri)
            if room < 0:
                return copies
            copies.append(copy)
    return copies


def _make_copy(file: _File, side: int) -> tuple[Image.Image | None, Thumbnail]:
    """Decode a file, and make a small copy of its image.

    Returns:
        The image, no larger than ``side`` pixels, and the copy. A missing or unreadable file has None and a copy
        without an image, whose remark says why.
    """
    path, decoding = file
    try:
        decoded = decode_for_viewing(path, decoding, side)
    except FileNotFoundError:
        return None, Thumbnail(remark="the file is missing")
    except Exception:  # noqa: BLE001  # a damaged file raises whatever its decoder likes; no image breaks the report
        return None, Thumbnail(remark="the file cannot be read as a picture")
    # A draft of a JPEG has at least these sides already.
    decoded.pixels.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    red, *others = (band.tobytes() for band in decoded.pixels.split())
    is_grey = all(band == red for band in others)  # which takes a third of the bytes
    image = decoded.pixels.getchannel("R") if is_grey else decoded.pixels
    return image, Thumbnail(_uri(image, side), *decoded.size, "; ".join(decoded.conversions))


def _uri(image: Image.Image, side: int) -> str:
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _open_values(item: AuditItem, texts: defaultdict[str, int]) -> _Json:
    """Return the values of an item that a withheld task must not show, each text as its number in ``texts``.

    A text that is new there gets the next number.
    """
    return {
        "q": texts[item.question],
        "o": [*map(texts.__getitem__, item.options)],
        "p": texts[item.prompt],
        "k": item.key,
        "c": named_options(item.key, item.options),
        "r": texts[item.reply],
        "f": list(item.facts),
    }


def audit_data(report: RunReport, images: Thumbnails) -> _Json:
    """Return the items of a report as JSON types.

    Texts and images are listed once and items name them by position, as pairs share question, options and mostly the
    prompt. Items of a withheld task have ids, answers, losses and groups only. Answers and groups of ``items`` are in
    the order of the task's ``rules`` and ``columns``.

    Args:
        report: Contents of the report.
        images: Small copies of its images.
    """
    # Numbers of texts in the order of first use.
    texts: defaultdict[str, int] = defaultdict(count().__next__)
    position = {file: number for number, file in enumerate(images.by_file)}
    missing = len(position)
    tasks: list[_Json] = []
    items: list[_Json] = []
    for number, task in enumerate(report.tasks):
        columns = list(dict.fromkeys(chain.from_iterable(item.groups for item in task.items)))
        rules = [rule.name for rule in task.rules]
        tasks.append(
            {
                "name": task.name,
                "anchor": wording.anchor(task.name),
                "withheld": task.withheld,
                "sample": task.sample_data,
                "rules": rules,
                "columns": columns,
            }
        )
        pictures = {key: position.get(file, missing) for key, file in task.pictures.items()}
        for item in task.items:
            entry: _Json = {
                "t": number,
                "id": item.doc_id,
                "u": item.unit,
                "l": [*map(as_json, item.losses)],
                "a": [_answer_values(item, rule) for rule in rules],
                "g": [list(item.groups.get(column, ())) for column in columns],
            }
            if not task.withheld:
                entry["i"] = [pictures.get(key, missing) for key in item.images]
                entry |= _open_values(item, texts)
            items.append(entry)
    sizes = [[image.width, image.height, image.remark] for image in images.by_file.values()]
    return {
        "texts": list(texts),
        "pictures": [*sizes, [0, 0, "its file is missing"]],
        "side": images.side,
        "reasons": {str(reason): list(words) for reason, words in wording.REASONS.items()},
        "tasks": tasks,
        "items": items,
    }


def _answer_values(item: AuditItem, rule: str) -> list[Any] | None:
    """Return answer, reason, whether it is right, score, and the options it names.

    The result is None if the rule has not read this item.
    """
    answer = item.answers.get(rule)
    if answer is None:
        return None
    named = named_options(answer.value or "", item.options)
    return [answer.value, answer.reason, answer.right, as_json(answer.score), named]


def named_options(answer: str, options: Sequence[str]) -> list[int]:
    """Return the options that an answer names, by one or several letters or by the whole text.

    Example:
        >>> named_options("A, B", ["Left", "Right"]), named_options("right", ["Left", "Right"])
        ([0, 1], [1])
    """
    by_letter = {letter(number): number for number in range(len(options))}
    names = re.findall(r"[^\s,;]+", answer)
    if names and all(name in by_letter for name in names):
        return sorted({by_letter[name] for name in names})
    text = answer.casefold()
    return [number for number, option in enumerate(options) if option.casefold() == text]
