"""Prompts by which questions are drafted: those of the papers letter by letter, and corrected wordings beside them.

A prompt stands in a TOML file of this package, ``[name]`` with ``version``, ``source``, ``system`` and ``user``. What
is specific to an image or pair is marked in it as its paper marks it: ``**CAPTION OF IMAGE 1**``, ``{report}``. One on
several of them has a ``block`` besides, which follows once for each.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from medtasks.data.journal import digest_of
from medtasks.data.packaged import packaged_facts


@dataclass(frozen=True)
class Prompt:
    """One prompt with its marks."""

    name: str
    version: int  # raised when the texts change
    source: str  # where it is published
    system: str
    user: str
    block: str = ""

    @property
    def label(self) -> str:
        """Name and version, as a journal records them."""
        return f"{self.name} v{self.version}"

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the user's part with each mark, which ``values`` has as its key, replaced by its value.

        Marks within values are left alone. A mark that the prompt does not have is a KeyError.

        Example:
            >>> Prompt("p", 1, "", "", "Report: {report}").filled({"{report}": "No {report}."})
            'Report: No {report}.'
        """
        return _filled(self.user, values)

    def with_blocks(self, blocks: Sequence[Mapping[str, str]]) -> str:
        """Return the user's part with the block behind it once for each mapping, filled likewise.

        Example:
            >>> Prompt("p", 1, "", "", "Categorize:", " Caption 0;").with_blocks([{"0": "0"}, {"0": "1"}])
            'Categorize: Caption 0; Caption 1;'
        """
        return self.user + "".join(_filled(self.block, values) for values in blocks)

    def asked(self, values: Mapping[str, str], llm: str) -> str:
        """Return the digest of what decides about the reply of an ``llm`` (its model and temperature)."""
        return digest_of(self.label, self.system, self.filled(values), llm)[:32]


def _filled(text: str, values: Mapping[str, str]) -> str:
    for mark in values:
        if mark not in text:
            raise KeyError(mark)
    marks = "|".join(re.escape(mark) for mark in sorted(values, key=len, reverse=True))
    return re.sub(marks, lambda found: values[found[0]], text)


@cache
def prompts_in(file: str) -> Mapping[str, Prompt]:
    """Return the prompts of ``<file>.toml`` of this package by name."""
    return {name: Prompt(name, **facts) for name, facts in packaged_facts(__package__, file).items()}
