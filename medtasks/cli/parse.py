"""``medtasks parse``: apply an answer rule to replies from standard input."""

import json
import sys
from typing import Annotated, Any

import typer

from medtasks.data.safe_parsing import parse_json
from medtasks.data.samples import Sample
from medtasks.errors import RepliesError
from medtasks.extract.extractor_registry import AnswerKind, extractor_of, extractors


def parse(rule: Annotated[str, typer.Argument(help=f"One of: {', '.join(extractors(AnswerKind.CHOICE))}.")]) -> None:
    """Read {"reply", "options"} per line from standard input; print value and reason per line."""
    extract = extractor_of(rule, AnswerKind.CHOICE).extract
    try:
        for number, line in enumerate(sys.stdin, start=1):
            if line.strip():
                reply, options = _fields(line, number)
                answer = extract(reply, Sample({"options": options}))
                print(json.dumps({"value": answer.value, "reason": str(answer.reason)}))  # noqa: T201
    except UnicodeDecodeError as error:
        raise RepliesError(f"standard input is not UTF-8 text: {error}") from error


def _fields(line: str, number: int) -> tuple[str | None, list[str]]:
    try:
        item: Any = parse_json(line)
        reply, options = item["reply"], item.get("options", [])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cause = "'reply' is missing" if isinstance(error, KeyError) else "it is no object"
        raise RepliesError(
            f"standard input line {number} is not an object like "
            f'{{"reply": "The answer is A", "options": ["yes", "no"]}}: '
            f"{error if isinstance(error, ValueError) else cause}"
        ) from error
    has_texts = isinstance(options, list) and all(isinstance(option, str) for option in options)
    if not (reply is None or isinstance(reply, str)) or not has_texts:
        raise RepliesError(f"standard input line {number}: 'reply' must be text or null, 'options' a list of texts")
    return reply, options
