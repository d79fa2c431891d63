"""What tests of metrics share."""

from collections.abc import Iterator

import pytest
from loguru import logger


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The warnings that were logged so far."""
    lines: list[str] = []
    handler = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    yield lines
    logger.remove(handler)
