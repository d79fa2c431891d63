"""What tests of families share."""

from collections.abc import Iterator

import pytest
from loguru import logger


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """The warnings of the test so far."""
    messages: list[str] = []
    sink = logger.add(lambda message: messages.append(message.record["message"]), level="WARNING")
    yield messages
    logger.remove(sink)
