"""What all model adapters share: the harness's loops around a model that turns (text, images) into model input."""

import dataclasses
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import torch
from lmms_eval.api.instance import GenerationResult
from loguru import logger
from tqdm import tqdm

from medtasks.extract.failure import failed_reply
from medtasks.net.journal import Journal, digest_of, journal_folder

from ..prefix.cached_prefix import PrefixCache
from ..prefix.sharing import Questions, score_by_question
from .arguments import AdapterArguments
from .batch_runner import BatchBudget, BatchRunner, FailureLog, Work
from .batching import Continuation, Encoded, Likelihood, PaddedBatch, score
from .caches import FeatureCache
from .device import choose_device
from .fingerprint import model_fingerprint
from .generation import GenerationItem, GenerationSettings, Reply, generate, read_settings
from .harness_adapter import HarnessAdapter
from .model import AdapterModel
from .requests import Request, Sample, SampleReader, image_names, plan_streams, read_requests

Item = TypeVar("Item")
Result = TypeVar("Result")


class MedicalAdapter(AdapterModel, HarnessAdapter):
    """A model in this process; subclasses say how to load, encode and embed, see ``README.md``."""

    arguments_type: ClassVar[type[AdapterArguments]] = AdapterArguments
    arguments: AdapterArguments

    def __init__(self, **arguments: object) -> None:
        super().__init__(**arguments)
        self.device = choose_device(
            self.arguments.device, self.accelerator.device, self.accelerator.num_processes, self.model_id
        )
        self._features = FeatureCache(self.arguments.feature_cache_mb * 2**20)
        self._prefixes = PrefixCache(self.arguments.prefix_cache_mb * 2**20)
        self._last_prepared = None
        self._journal: Journal | None = None
        self._fingerprint: str | None = None
        self.load()

    def generate_until(self, requests: Sequence[Any]) -> list[str] | list[GenerationResult]:
        """Answer every request; a sample that fails gets a reply marked by ``failed_reply``.

        With ``token_counts`` the replies are the harness's ``GenerationResult``. More failures than ``max_failed``
        allows, or impossible ``generation_kwargs``, are a ``MedTasksError``.
        """
        read = self.read_generation(requests)
        alone = attrgetter("name", "repeat")

        def group(request: Request) -> tuple[object, ...]:
            settings = self._settings(request)
            # Sampled replies are drawn one by one: in a batch they would depend on their neighbours.
            return settings, alone(request) if settings.temperature > 0 else None

        def prepare(sample: Sample) -> GenerationItem:
            prompt = self.encode(sample.request.context, list(sample.visuals.images))
            return GenerationItem(prompt, self._settings(sample.request), sample.request.seed(self.arguments.seed))

        def execute(items: Sequence[GenerationItem]) -> list[Reply]:
            texts = self.generate_batch([item.prompt for item in items], items[0].settings, items[0].seed)
            return [text if isinstance(text, Reply) else Reply(text) for text in texts]

        work = Work(
            kind="generate_until",
            prepare=prepare,
            length=lambda item: len(item.prompt.ids),
            execute=execute,
            fallback=lambda cause: Reply(failed_reply(cause)),
            key=lambda sample: self._key(
                sample, (dataclasses.astuple(self._settings(sample.request)), sample.request.seed(self.arguments.seed))
            ),
            stored=lambda reply: {"text": str(reply), "counts": [reply.input_tokens, reply.output_tokens]},
            restored=lambda text, counts: Reply(text, *counts),
        )
        replies = self._run(work, read, plan_streams(read, group, alone))
        return self.handed_replies(read, replies)

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]] | list[tuple[str, dict[str, int]]]:
        """Score every continuation.

        The result is that of :meth:`handed_scores`. More failures than ``max_failed`` allows are a ``MedTasksError``.
        """
        read = read_requests(requests, "loglikelihood")
        work = Work(
            kind="loglikelihood",
            prepare=lambda sample: self.encode_pair(
                sample.request.context, sample.continuation or "", list(sample.visuals.images)
            ),
            length=lambda item: len(item.sequence.ids),
            execute=self.score_batch,
            fallback=lambda _: Likelihood(math.nan, 1, False),
            key=lambda sample: self._key(sample, sample.continuation),
            stored=dataclasses.asdict,
            restored=Likelihood,
        )
        streams = plan_streams(read, lambda _: None, attrgetter("name", "repeat"))
        if self.arguments.prefix_cache:
            # What shares a prefix has to lie in one batch: the options of a question, questions on one image.
            place = attrgetter("task", "split", "doc_id", "context")
            streams = plan_streams(read, lambda _: None, place, image_names(self.task_dict))
        return self.handed_scores(self._run(work, read, streams))

    def clean(self) -> None:
        """Free the weights, and the features, keys and values that were kept."""
        self._features.clear()
        self._prefixes.clear()
        self._last_prepared = None
        super().clean()

    @torch.inference_mode()
    def generate_batch(self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int) -> list[str]:
        """Generate replies in one go; texts that are ``Reply`` objects carry their token counts.

        The seed is used where ``settings`` ask for sampling; the global random state is left as it was.
        """
        return generate(self, prompts, settings, seed)

    @torch.inference_mode()
    def score_batch(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score continuations, with sums and token counts; those of one question share the pass over their prompt."""
        if not self.arguments.prefix_cache:
            return self._score_whole(items)
        try:
            return self._score_shared(items)
        except Exception:
            self._prefixes.clear()  # a smaller batch has to find all of the memory
            raise

    def _score_shared(self, items: Sequence[Continuation]) -> list[Likelihood]:
        return score_by_question(Questions.of(items, self), self, self._score_whole, self._prefixes)

    def _score_whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        def logits_of(batch: PaddedBatch, keep: int) -> torch.Tensor:
            inputs = self.model_inputs(batch)
            logits: torch.Tensor = self.language_model(**inputs, logits_to_keep=keep, use_cache=False).logits
            return logits

        return score(items, logits_of, self.pad_id, self.device)

    def _settings(self, request: Request) -> GenerationSettings:
        return read_settings(request.detail, self.arguments.max_new_tokens)

    def _key(self, sample: Sample, detail: object) -> str:
        request = sample.request
        place = request.task, request.split, request.doc_id, request.index, request.repeat
        kind = "generation" if sample.continuation is None else "loglikelihood"
        return digest_of(self._fingerprint, kind, place, request.context, sample.visuals.digests, detail)

    def _run(
        self, work: Work[Item, Result], requests: Sequence[Request], streams: Sequence[Sequence[Sequence[int]]]
    ) -> list[Result]:
        reader = SampleReader(self.task_dict, work.kind == "loglikelihood", self.visual_types)
        failures = FailureLog(work.kind, sum(not request.padding for request in requests), self.arguments.max_failed)
        budget = BatchBudget(self.arguments.requests_per_batch, self.arguments.batch_tokens)
        journal = self._opened_journal() if requests else None
        bar: tqdm[Any]
        with tqdm(
            total=len(requests), desc=f"{self.model_id} {work.kind}", unit="request", disable=self.rank != 0
        ) as bar:
            runner = BatchRunner(requests, work, reader, budget, failures, journal, bar)
            results = runner.run(streams)
        if runner.replayed and runner.journal is not None:
            answers = f"{runner.replayed} of {len(requests)} {work.kind} answers"
            logger.info("{} come from the journal beside {}", answers, runner.journal.path)
        failures.settle()
        return results

    def _opened_journal(self) -> Journal | None:
        folder = journal_folder(self.arguments.journal, self.model_id)
        if self._journal is None and folder is not None:
            self._fingerprint = model_fingerprint(
                self.model_id, type(self), self.arguments, self.device.type, self.fingerprint()
            )
            self._journal = Journal(folder, self._fingerprint, self.rank, self.world_size)
        return self._journal
