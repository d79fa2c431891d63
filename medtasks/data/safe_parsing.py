"""JSON, Python literals and YAML from elsewhere: any fault of a text is a ValueError or a ``yaml.YAMLError``."""

import ast
import contextlib
import json
from typing import Any

import yaml

_MOST_VALUES = 100_000  # in a YAML text; the longest files of tasks and recipes have hundreds


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Return the value of a JSON text.

    Args:
        text: In UTF-8, where it is bytes.
        **options: Of :func:`json.loads`.

    Raises:
        ValueError: It is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def exact_decoder() -> json.JSONDecoder:
    """Build a decoder that refuses a key that occurs twice in an object.

    Example:
        >>> exact_decoder().decode('{"id": 1, "id": 2}')
        Traceback (most recent call last):
        ValueError: the key 'id' occurs twice in one object
    """
    return json.JSONDecoder(object_pairs_hook=_unique_keys)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key '{max(keys, key=keys.count)}' occurs twice in one object")
    return content


def parse_literal(text: str) -> Any:
    """Return the value of a Python literal, such as a list that was printed. Nothing is run.

    Raises:
        ValueError: It is no literal.

    Example:
        >>> parse_literal("['CT', 'MRI']")
        ['CT', 'MRI']
    """
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"it is no literal ({type(error).__name__})") from error


def parse_yaml(text: str, loader: Any) -> Any:
    """Return the value of a YAML text.

    Args:
        text: As it is written.
        loader: Class of the ``yaml`` package.

    Raises:
        ValueError: Its aliases expand to an enormous value.
        YAMLError: It is no YAML.
    """
    content = yaml.load(text, Loader=loader)
    with contextlib.suppress(RecursionError):  # an alias in its own value
        if _count(content, {}) <= _MOST_VALUES:
            return content
    raise ValueError(f"its aliases stand for more than {_MOST_VALUES:,} values")


def _count(value: Any, counted: dict[int, int]) -> int:
    """Return the number of values in a value if nothing in it were shared. Each shared one is visited once."""
    if isinstance(value, dict | list) and id(value) not in counted:
        inside = value.values() if isinstance(value, dict) else value
        counted[id(value)] = 1 + sum(_count(item, counted) for item in inside)
    return counted.get(id(value), 1)
