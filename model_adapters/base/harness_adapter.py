"""Base of all our models, served ones included: the harness's interface, and the journal of a model's answers.

``MedicalAdapter`` (models in this process) and the adapters of servers extend it. It must never read weights or
images: it is also the base of models that have none.
"""

import dataclasses
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from accelerate import Accelerator
from lmms_eval import utils as harness_utils
from lmms_eval.api.instance import GenerationResult, TokenCounts
from lmms_eval.api.model import lmms
from loguru import logger
from tqdm import tqdm

from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.net.journal import Journal, digest_of, journal_folder

from .arguments import HarnessArguments, parse_arguments
from .batching import KNOWN_SETTINGS, CountedReply, Likelihood
from .requests import FailureLog, Request, TaskDocuments, read_requests

# Arguments that change no answer. Of the device, only its type counts.
NEUTRAL = {
    "batch_size",
    "batch_tokens",
    "max_batch_size",
    "max_failed",
    "device",
    "journal",
    "feature_cache_mb",
    "prefix_cache_mb",
    "loglikelihood_format",
    "token_counts",
    "attempts",
    "concurrency",
    "timeout",
}
_LIBRARIES = ("torch", "transformers", "pillow", "numpy")

HarnessScores = list[tuple[float, bool]] | list[tuple[str, dict[str, int]]]
"""Losses in the form that the harness takes, see :meth:`HarnessAdapter.format_scores`."""


class HarnessAdapter(lmms):  # type: ignore[misc]  # the harness is not typed
    """A simple-type harness model.

    Unknown arguments and impossible values are an ``AdapterArgumentError``.
    """

    is_simple = True
    model_id: ClassVar[str] = "adapter"  # name in messages and of the journal's folder
    arguments_type: ClassVar[type[HarnessArguments]]
    arguments: HarnessArguments
    task_dict: TaskDocuments
    quotes_errors = False
    # Text of the model is escaped, and marks are ours, see medtasks.extract.failure.
    marks_replies = True

    def __init__(self, **arguments: object) -> None:
        super().__init__()
        self.arguments = parse_arguments(self.arguments_type, arguments, self.model_id)
        # Samples with an answer that another run asked for.
        self.copied: set[tuple[str, int]] = set()
        # The evaluator gathers over these four on several processes.
        self.accelerator = Accelerator()
        self._rank = self.accelerator.process_index
        self._world_size = self.accelerator.num_processes
        self.device = self.accelerator.device
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if started != self._world_size:  # every process would take itself for the first
            raise MedTasksError(
                f"{self.model_id}: {started} processes were started, but accelerate connects {self._world_size}; "
                f"without a GPU start them with `ACCELERATE_USE_CPU=true torchrun --nproc_per_node {started} -m "
                f"lmms_eval ...`."
            )

    @classmethod
    def create_from_arg_string(
        cls,
        arg_string: str,
        additional_config: Mapping[str, object] | None = None,
    ) -> "HarnessAdapter":
        """Build the adapter from the harness's command line.

        Args:
            arg_string: The text of ``--model_args``.
            additional_config: The harness's own options, over which ``--model_args`` win; ``None`` for none.

        Raises:
            AdapterArgumentError: An argument is unknown, impossible, or not written as ``key=value``.
        """
        # The command line always passes batch_size=1, on which the harness's version of this method fails if
        # --model_args has batch_size, too.
        try:
            values = harness_utils.simple_parse_args_string(arg_string)
        except ValueError:
            raise AdapterArgumentError(
                f"{cls.model_id}: write --model_args as key=value,key=value."
            ) from None
        return cls(**{**(additional_config or {}), **values})  # the later ones win

    def quote_errors(self, *, allowed: bool) -> None:
        """Set whether failures quote the messages of errors, which may repeat text of a sample."""
        self.quotes_errors = allowed

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refuse: not supported."""
        raise MedTasksError(
            f"{self.model_id} answers in one round; choose a task of type generate_until or multiple_choice "
            f"instead of a multi-round one."
        )

    def read_generation(self, requests: Sequence[Any]) -> list[Request]:
        """Return the requests of ``generate_until``.

        Settings that our models do not know are logged.
        """
        typed = read_requests(requests, "generate_until")
        ignored = set().union(*(request.detail for request in typed)) - KNOWN_SETTINGS
        if ignored:
            logger.debug(
                "{} ignores generation_kwargs {}", self.model_id, ", ".join(sorted(ignored))
            )
        return typed

    def open_failure_log(self, kind: str, requests: Sequence[Request]) -> FailureLog:
        """Return the log of failures for a call of the harness.

        Args:
            kind: Name of the call.
            requests: Requests of the call, of which padding between ranks does not count.
        """
        count = sum(not request.padding for request in requests)
        return FailureLog(kind, count, self.arguments.max_failed, quotes=self.quotes_errors)

    def open_progress(self, kind: str, total: int) -> "tqdm[Any]":
        """Return the progress bar of a call of the harness, which only the first process shows.

        Args:
            kind: Name of the call.
            total: Number of its requests.
        """
        return tqdm(
            total=total,
            desc=f"{self.model_id} {kind}",
            unit="request",
            disable=self.rank != 0,
        )

    def format_replies(
        self,
        requests: Sequence[Request],
        replies: Sequence[CountedReply],
    ) -> list[str] | list[GenerationResult]:
        """Return replies as the harness takes them.

        Args:
            requests: The requests that were answered.
            replies: One per request, in the same order.

        Returns:
            Texts that carry their token counts, which show whether they reached the limit. With the argument
            ``token_counts``, the harness's ``GenerationResult``.
        """
        for request, reply in zip(requests, replies, strict=True):
            key = (request.context, request.detail)
            self.cache_hook.add_partial("generate_until", key, str(reply))
        if not self.arguments.token_counts:
            return list(replies)
        results = []
        for reply in replies:
            counts = TokenCounts(
                reply.input_tokens, reply.output_tokens, reply.reasoning_tokens
            )
            results.append(GenerationResult(str(reply), counts))
        return results

    def format_scores(self, scores: Sequence[Likelihood]) -> HarnessScores:
        """Return scores as the harness takes them.

        Returns:
            Mean negative log-likelihoods in nats with their greedy flags, ``(nan, False)`` after a failure. With
            ``loglikelihood_format=json``, JSON that ``medtasks.runs.reply_envelope.parse_loglikelihood`` reads.
        """
        if self.arguments.loglikelihood_format != "json":
            return [(score.mean, score.greedy) for score in scores]
        results = []
        for score in scores:
            text = {
                "mean": score.mean,
                "greedy": score.greedy,
                "sum": score.total,
                "tokens": score.tokens,
            }
            results.append((json.dumps(text), {"output_tokens": score.tokens}))
        return results

    def open_journal(
        self,
        arguments: HarnessArguments,
        device: str,
        weights: Callable[[], str],
    ) -> Journal | None:
        """Open the journal of answers by this model, named after all that may change one.

        Args:
            arguments: Arguments of the model, of which ``NEUTRAL`` ones do not count.
            device: Type of the device, without its number.
            weights: Called only where a journal is kept; returns a digest of what answers.

        Returns:
            The journal, or ``None`` where the argument ``journal`` is false.
        """
        folder = journal_folder(arguments.journal, self.model_id)
        if folder is None:
            return None
        decisive = dataclasses.asdict(arguments)
        for name in NEUTRAL:
            decisive.pop(name, None)
        versions = {name: metadata.version(name) for name in _LIBRARIES}
        files = sorted(Path(__file__).parents[1].rglob("*.py"))
        module_file = inspect.getsourcefile(type(self))  # it may be in another package
        if module_file:
            files.append(Path(module_file))
        code = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
        name = digest_of(
            self.model_id,
            type(self).__qualname__,
            digest_of(code),
            versions,
            decisive,
            device,
            weights(),
        )
        return Journal(folder, name, self.rank, self.world_size)
