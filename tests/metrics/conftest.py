"""The published tokenizer of CIDEr, where it can run."""

import functools

import pytest

from medtasks.errors import WeightsMissing
from medtasks.metrics import cider

TOKENIZED = functools.cache(cider._tokenize)


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip where the published tokenizer cannot run; it runs once for the same text."""
    try:
        cider.tokenizer_command()
    except WeightsMissing as error:
        pytest.skip(str(error))
    monkeypatch.setattr(cider, "_tokenize", TOKENIZED)
