"""What all our models are to the harness, wherever they run."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from accelerate import Accelerator
from lmms_eval import utils as harness_utils
from lmms_eval.api.instance import GenerationResult, TokenCounts
from lmms_eval.api.model import lmms
from loguru import logger

from medtasks.errors import AdapterArgumentError, MedTasksError

from .arguments import HarnessArguments, parse_arguments
from .batching import Likelihood
from .device import check_processes
from .generation import KNOWN_SETTINGS, Reply
from .requests import Documents, Request, read_requests


class HarnessAdapter(lmms):  # type: ignore[misc]  # the harness is not typed
    """A simple-type harness model.

    Building one raises an ``AdapterArgumentError`` where an argument is unknown or has an impossible value.
    """

    is_simple = True
    model_id: ClassVar[str]
    arguments_type: ClassVar[type[HarnessArguments]]
    arguments: HarnessArguments
    task_dict: Documents

    def __init__(self, **arguments: object) -> None:
        super().__init__()
        self.arguments = parse_arguments(self.arguments_type, arguments, self.model_id)
        # The evaluator gathers over these four on several processes.
        self.accelerator = Accelerator()
        check_processes(self.accelerator.num_processes, self.model_id)
        self._rank = self.accelerator.process_index
        self._world_size = self.accelerator.num_processes
        self.device = self.accelerator.device

    @classmethod
    def create_from_arg_string(
        cls, arg_string: str, additional_config: Mapping[str, object] | None = None
    ) -> "HarnessAdapter":
        """Build the adapter from ``--model_args``, which win over the harness's own options.

        They have to: the command line always passes ``batch_size=1``, and the harness's version of this method dies of
        a repeated keyword when ``batch_size`` stands in ``--model_args`` as well.
        """
        try:
            given = harness_utils.simple_parse_args_string(arg_string)
        except ValueError:
            raise AdapterArgumentError(f"{cls.model_id}: write --model_args as key=value,key=value.") from None
        return cls(**{**(additional_config or {}), **given})

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refuse: not supported."""
        raise MedTasksError(
            f"{self.model_id} answers in one round; choose a task of type generate_until or multiple_choice "
            f"instead of a multi-round one."
        )

    def read_generation(self, requests: Sequence[Any]) -> list[Request]:
        """Return the requests of ``generate_until``; settings that no model of ours knows are named in the log."""
        read = read_requests(requests, "generate_until")
        ignored = set().union(*(request.detail for request in read)) - KNOWN_SETTINGS
        if ignored:
            logger.debug("{} ignores generation_kwargs {}", self.model_id, ", ".join(sorted(ignored)))
        return read

    def handed_replies(
        self, requests: Sequence[Request], replies: Sequence[Reply]
    ) -> list[str] | list[GenerationResult]:
        """Return replies as the harness takes them, with ``token_counts`` as its ``GenerationResult``."""
        for request, reply in zip(requests, replies, strict=True):
            self.cache_hook.add_partial("generate_until", (request.context, request.detail), str(reply))
        if not self.arguments.token_counts:
            return list(replies)  # texts that carry their counts, which say whether they reached the limit
        return [
            GenerationResult(str(one), TokenCounts(one.input_tokens, one.output_tokens, one.reasoning_tokens))
            for one in replies
        ]

    def handed_scores(
        self, scores: Sequence[Likelihood]
    ) -> list[tuple[float, bool]] | list[tuple[str, dict[str, int]]]:
        """Return likelihoods as the harness takes them.

        Each is the mean negative log-likelihood of the continuation's tokens (nats, smaller is better) and whether
        greedy decoding would produce it; ``(nan, False)`` for a sample that failed. With ``loglikelihood_format=json``
        instead ``Likelihood.json`` and the token count; the harness leaves that as it is.
        """
        if self.arguments.loglikelihood_format == "json":
            return [(likelihood.json, {"output_tokens": likelihood.tokens}) for likelihood in scores]
        return [(likelihood.mean, likelihood.greedy) for likelihood in scores]
