"""JSON that others wrote: whatever is wrong with a text is a ValueError."""

import json
from typing import Any


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Return the value of a JSON text, see :func:`json.loads`."""
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
