"""Extractors as functions of a reply and the options alone."""

from collections.abc import Callable, Sequence

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer
from medtasks.extract.registry import extractor_of


def reading(rule: str) -> Callable[..., Answer]:
    """Return the extractor ``rule`` for samples that have nothing but options."""
    extract = extractor_of(rule).extract

    def read(reply: str | None, options: Sequence[str] = ()) -> Answer:
        return extract(reply, Sample({"options": options}))

    return read
