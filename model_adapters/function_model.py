"""A function in place of a model: it gets questions as messages and images, and returns a text for each."""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from lmms_eval.api.instance import GenerationResult
from PIL import Image

from medtasks.errors import MedTasksError, listed
from medtasks.extract.failure import escaped_reply, failed_reply
from medtasks.net.journal import digest_of
from medtasks.prompts.messages import content_parts, prompt_parts

from .base.arguments import HarnessArguments, argument
from .base.batching import CountedReply, GenerationSettings, before_stops, read_settings
from .base.harness_adapter import HarnessAdapter
from .base.requests import BatchRunner, FailureLog, LoadedRequest, Request, RequestReader, Work, plan_streams

_FIRST = 32  # questions; if all of these fail, the run stops


@dataclass(frozen=True)
class FunctionArguments(HarnessArguments):
    """Arguments of a function; ``model`` says what it asks, in the names of results."""

    model: str | None = argument(None)
    journal: str = argument("false")  # a function that changed cannot be told from what it was


class Question(tuple[list[dict[str, Any]], list[Image.Image]]):
    """The pair ``(messages, images)`` that a function answers, with the task's decoding settings."""

    settings: GenerationSettings


class FunctionModel(HarnessAdapter):
    """A function that answers lists of :class:`Question`; what it cannot answer is a failed sample."""

    model_id: ClassVar[str] = "adapter"
    arguments_type: ClassVar[type[HarnessArguments]] = FunctionArguments
    arguments: FunctionArguments
    function: Callable[[list[Question]], Iterable[str | None]]
    named_as: str

    def generate_until(self, requests: Sequence[Any]) -> list[str] | list[GenerationResult]:
        """Answer every request; failed samples have marked replies, and if the first all fail the run stops."""
        typed = self.read_generation(requests)
        work = Work(
            kind="generate_until",
            prepare=self._question,
            length=lambda question: 0,
            execute=self._replies,
            fallback=lambda cause: CountedReply(failed_reply(cause)),
            decisive=lambda loaded: self._settings(loaded.request),
            stored=lambda reply: {"text": str(reply)},
            restored=lambda text: CountedReply(text),
        )
        streams = plan_streams(typed, self._settings, lambda request: (request.name, request.repeat), self.task_dict)
        failures = FailureLog(work.kind, len(typed), self.arguments.max_failed, quotes=self.quotes_errors)
        reader = RequestReader(self.task_dict, scored=False)
        journal = self.open_journal(self.arguments, "function", self._fingerprint)
        rows = self.arguments.batch_size
        # Where many fail later, the other replies count all the same.
        return self.handed_replies(
            typed, self.run_batches(BatchRunner(typed, work, reader, rows, None, failures, journal, _FIRST), streams)
        )

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Refuse: a function gives no likelihoods."""
        tasks = listed(sorted({str(request.task_name) for request in requests}))
        raise MedTasksError(
            f"likelihoods of options are needed for {tasks}, and a function gives texts alone; choose a task that "
            f"reads replies instead, or use --model hf_vlm or vlm_server"
        )

    def _fingerprint(self) -> str:
        """Return a digest of the function's source, as far as it has one; what it calls is not in it."""
        source = ""
        with contextlib.suppress(OSError, TypeError):
            source = inspect.getsource(self.function)
        return digest_of(self.named_as, source)

    # ---- one call of the function ----

    def _settings(self, request: Request) -> GenerationSettings:
        return read_settings(request.detail, self.arguments.max_new_tokens)

    def _question(self, sample: LoadedRequest) -> Question:
        # Copies, which the function may change. The content is a list without images, too, as chat templates expect.
        images = [image.convert("RGB") for image in sample.visuals.images]
        parts = prompt_parts(sample.request.context, len(images))
        messages = [{"role": "user", "content": content_parts(parts, [{"type": "image"}] * len(images))}]
        question = Question((messages, images))
        question.settings = self._settings(sample.request)
        return question

    def _replies(self, questions: Sequence[Question]) -> list[CountedReply | Exception]:
        """Ask the function. Raises MedTasksError if it returns no list, or another number of replies."""
        returned: Any = self.function(list(questions))
        if isinstance(returned, str | bytes | Mapping | Set) or not isinstance(returned, Iterable):
            raise MedTasksError(
                f"the function returned {_kind(returned)} for {len(questions)} questions; return a list of texts"
            )
        texts = list(returned)
        if len(texts) != len(questions):
            raise MedTasksError(
                f"the function returned {len(texts)} replies to {len(questions)} questions; return one for each"
            )
        return [self._reply(text, question) for text, question in zip(texts, questions, strict=True)]

    def _reply(self, text: Any, question: Question) -> CountedReply | Exception:
        if not isinstance(text, str):
            return MedTasksError(f"the function returned {_kind(text)} in place of a text")
        return CountedReply(escaped_reply(before_stops(text, question.settings.until).strip()))


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
