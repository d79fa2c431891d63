"""``medtasks parse``: apply one answer rule to replies from standard input."""

import json
import sys
from typing import Annotated, Any

import typer

from medtasks.answers.registry import TEXT_RULES, text_rule
from medtasks.errors import RepliesError


def parse(rule: Annotated[str, typer.Argument(help=f"One of: {', '.join(TEXT_RULES)}.")]) -> None:
    """Read {"reply", "options"} per line from standard input; print value and reason per line."""
    read = text_rule(rule).read
    for number, line in enumerate(sys.stdin, start=1):
        if not line.strip():
            continue
        reply, options = _fields(line, number)
        answer = read(reply, options)
        print(json.dumps({"value": answer.value, "reason": str(answer.reason)}))  # noqa: T201


def _fields(line: str, number: int) -> tuple[str | None, list[str]]:
    try:
        item: Any = json.loads(line)
        reply, options = item["reply"], item.get("options", [])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RepliesError(
            f"standard input line {number} is not an object like "
            f'{{"reply": "The answer is A", "options": ["yes", "no"]}}: {error}'
        ) from error
    if not (reply is None or isinstance(reply, str)) or not all(isinstance(option, str) for option in options):
        raise RepliesError(f"standard input line {number}: 'reply' must be text and 'options' a list of texts")
    return reply, options
