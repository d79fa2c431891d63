"""What an LLM replies when it is asked for hallucination questions: JSON of exactly the asked-for form, or nothing.

The JSON may stand in a fence, behind reasoning or a sentence, or below one key. A field that is missing, unknown, empty
or of another type breaks the form of the whole reply.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from medtasks.curate.drafts import LONGEST
from medtasks.data.medheval.records import BINARY, COMPONENTS, HALLUCINATIONS
from medtasks.extract.reply_text import without_thoughts

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST)]
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_BEGIN = re.compile(r"[\[{]")
_TYPES = "|".join(HALLUCINATIONS)


class Question(BaseModel):
    """An open question with its answer, and what all of them have."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    question: _Text
    answer: _Text


class YesNoQuestion(Question):
    """A question that is answered by yes or no."""


class TypedQuestion(Question):
    """A closed question that says of which type of hallucination it is."""

    type: Annotated[str, StringConstraints(strip_whitespace=True, pattern=rf"^(?:{_TYPES})\b")]
    ground_truth_type: Literal["binary", "multi-choice"]  # BINARY and MULTI_CHOICE of the published records
    # The constraint is what half a surrogate pair fails.
    choices: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)] | None = None

    @property
    def hallucination(self) -> str:
        """The type's name; an LLM may write what it means behind it."""
        return next(name for published, name in HALLUCINATIONS.items() if self.type.startswith(published))

    @property
    def binary(self) -> bool:
        """Whether it is answered by yes or no."""
        return self.ground_truth_type == BINARY


class Components(BaseModel):
    """What a report names, by aspect."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    anatomy: list[_Text]
    measurement: list[_Text]
    symptom: list[_Text]

    def by_aspect(self) -> Mapping[str, tuple[str, ...]]:
        """Return them as drafts keep them."""
        return {aspect: tuple(getattr(self, aspect)) for aspect in COMPONENTS}


class ReportQuestion(Question):
    """A question for everything that a report names."""

    components: Components = Field(alias="Structured_Answer")


Q = TypeVar("Q", bound=Question)


def questions_in(reply: str, schema: type[Q]) -> Sequence[Q] | None:
    r"""Return the questions of a reply, at least one; None for another form.

    Example:
        >>> questions_in('```json\n[{"question": "Is there a mass?", "answer": "No"}]\n```', YesNoQuestion)
        [YesNoQuestion(question='Is there a mass?', answer='No')]
        >>> questions_in('[{"question": "Is there a mass?"}]', YesNoQuestion) is None
        True
    """
    for value in _values(without_thoughts(reply) or ""):
        records = _unwrapped(value)
        try:
            if isinstance(records, list) and records:
                return [schema.model_validate(record) for record in records]
        except ValidationError:
            continue
    return None


def _values(reply: str) -> Iterator[Any]:
    """Yield the JSON in a reply: in each of its fences, else from the first bracket on."""
    begin = _BEGIN.search(reply)
    for text in _FENCED.findall(reply) or ([reply[begin.start() :]] if begin else []):
        try:
            yield json.JSONDecoder().raw_decode(text.strip())[0]
        except (ValueError, RecursionError):
            continue


def _unwrapped(value: Any) -> Any:
    """Return the list in an object of one key, and an object that is a question, or holds only one, in a list."""
    if not isinstance(value, dict):
        return value
    only = next(iter(value.values())) if len(value) == 1 else value
    return only if isinstance(only, list) else [only]
