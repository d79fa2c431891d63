"""A function in place of a model: it gets questions as messages and images, and returns a text for each.

``any_model`` builds one for ``--model adapter``, and the Python API for ``medtasks.evaluate``.
"""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from medtasks.errors import MedTasksError, join_names
from medtasks.net.journal import digest_of
from medtasks.prompts.messages import chat_messages, prompt_parts
from medtasks.tasks.task_files import task_files

from .base.adapter import MedicalAdapter
from .base.arguments import AdapterArguments, argument
from .base.batching import GenerationSettings, before_stops


@dataclass(frozen=True)
class FunctionArguments(AdapterArguments):
    """Arguments of a function."""

    model: str | None = argument(None)  # the model that it asks, for the names of results
    # by default, what was answered counts whatever fails later
    max_failed: float = argument(1.0, least=0, most=1)
    journal: str = argument("false")  # a function that changed cannot be told from what it was


class Question(tuple[list[dict[str, Any]], list[Image.Image]]):
    """The pair ``(messages, images)`` that a function answers, with the task's decoding settings."""

    settings: GenerationSettings
    ids = ()  # its length is unknown


class FunctionModel(MedicalAdapter):
    """A function that answers lists of :class:`Question`. What it cannot answer is a failed sample."""

    model_id = "adapter"
    arguments_type = FunctionArguments
    draws_in_batches = True
    stops_after = 32
    function: Callable[[list[Question]], Sequence[str | None]]
    named_as: str

    def load(self) -> None:
        """Do nothing: the function has what it needs."""

    def encode(
        self,
        text: str,
        images: Sequence[Image.Image],
        reply: str = "",
    ) -> Any:
        """Return a question with copies of the images, which the function may change."""
        places = [{"type": "image"}] * len(images)
        messages = chat_messages(prompt_parts(text, len(images)), places)
        return Question((messages, [image.convert("RGB") for image in images]))

    def generate_batch(
        self,
        prompts: Sequence[Any],
        settings: GenerationSettings,
        seed: int,
    ) -> Any:
        """Return the function's texts, and an error in place of each that is none.

        Raises:
            MedTasksError: It returned no list, or another number of replies.
        """
        for question in prompts:
            question.settings = settings
        returned: Any = self.function(list(prompts))
        if not isinstance(returned, list | tuple):
            raise MedTasksError(
                f"the function returned {type(returned).__name__} for {len(prompts)} questions; return a list of texts"
            )
        if len(returned) != len(prompts):
            raise MedTasksError(
                f"the function returned {len(returned)} replies to {len(prompts)} questions; return one for each"
            )
        replies: list[str | Exception] = []
        for text in returned:
            if isinstance(text, str):
                replies.append(before_stops(text, settings.until).strip())
            else:
                replies.append(
                    MedTasksError(
                        f"the function returned {type(text).__name__} in place of a text"
                    )
                )
        return replies

    def loglikelihood(self, requests: Sequence[Any]) -> Any:
        """Refuse: a function gives no likelihoods."""
        raise likelihood_error(sorted({str(request.task_name) for request in requests}))

    def fingerprint(self) -> str:
        """Return a digest of the function's source, as far as it has one. What it calls is not in it."""
        source = ""
        with contextlib.suppress(OSError, TypeError):
            source = inspect.getsource(self.function)
        return digest_of(self.named_as, source)


def likelihood_error(names: Sequence[str]) -> MedTasksError:
    """Build the error for tasks that compare likelihoods, which names tasks on the same data that read replies.

    Args:
        names: Tasks that compare likelihoods.
    """
    files = task_files()
    datasets = {files[name].dataset for name in names if name in files} - {None}
    others = []
    for task in files.values():
        if task.dataset in datasets and not task.compares_likelihoods:
            others.append(task.name)
    return MedTasksError(
        f"likelihoods of options are needed for {join_names(names)}, and a function gives texts alone; choose "
        f"{join_names(others) or 'a task that reads replies'} instead, or use --model hf_vlm or vlm_server"
    )
