"""A report as JSON values."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

from medtasks.audit.report.contents import RunReport, TaskReport


def report_as_dict(report: RunReport) -> dict[str, Any]:
    """Return a report as JSON types: undefined numbers become None, files of pictures are left out.

    What a :attr:`~medtasks.audit.report.contents.TaskReport.withheld` section keeps back is not in here either.
    """
    found: dict[str, Any] = _as_json(report)
    return found


def _as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        left_out = {"pictures", "decoding"} if isinstance(value, TaskReport) else set()
        return {one.name: _as_json(getattr(value, one.name)) for one in fields(value) if one.name not in left_out}
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value  # a StrEnum becomes plain text
    if isinstance(value, Integral):  # numpy's numbers would not be JSON
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)
