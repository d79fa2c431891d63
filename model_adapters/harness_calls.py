"""From the harness's requests to batches on the model and back: one method per kind of request."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from loguru import logger
from tqdm import tqdm

from medtasks.extract.failure import failed_reply

from .batching import BatchRoom, plan_streams, unnamed
from .failures import FailureLedger
from .fingerprint import model_fingerprint
from .generation import GenerationItem, Reply
from .guarded_loop import GuardedLoop, Work
from .image_names import ImageNames
from .journal import Journal, digest_of, journal_folder
from .requests import Request
from .samples import Sample, SampleReader
from .scoring import FAILED, Continuation, Likelihood

if TYPE_CHECKING:
    from .base import MedicalAdapter

Item = TypeVar("Item")
Result = TypeVar("Result")


class HarnessCalls:
    """Runs the requests of one adapter.

    Args:
        adapter: The adapter; its arguments and, at the first call, its weights have to be there.
    """

    def __init__(self, adapter: "MedicalAdapter") -> None:
        self._adapter = adapter
        self._journal: Journal | None = None
        self._fingerprint: str | None = None

    def generate(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer every request; the text of a failed one is marked by ``failed_reply``.

        Raises:
            MedTasksError: More samples failed than are allowed, or ``generation_kwargs`` are impossible.
        """
        work = Work(
            kind="generate_until",
            group=self._group,
            prepare=self._generation_item,
            length=lambda item: len(item.prompt.ids),
            execute=self._generate_items,
            fallback=lambda cause: Reply(failed_reply(cause)),
            key=lambda sample: self._key(sample, self._seeded_settings(sample.request)),
            stored=lambda reply: {"text": str(reply), "counts": [reply.input_tokens, reply.output_tokens]},
            restored=lambda text, counts: Reply(text, *counts),
        )
        return self._run(work, requests, SampleReader(self._adapter.task_dict, False, self._adapter.visual_types))

    def score(self, requests: Sequence[Request]) -> list[Likelihood]:
        """Score every continuation; ``FAILED`` stands for a sample that failed.

        Raises:
            MedTasksError: More samples failed than are allowed.
        """
        work = Work(
            kind="loglikelihood",
            group=lambda _: None,
            prepare=self._scoring_item,
            length=lambda item: len(item.sequence.ids),
            execute=self._adapter.score_batch,
            fallback=lambda _: FAILED,
            key=lambda sample: self._key(sample, sample.continuation),
            stored=dataclasses.asdict,
            restored=Likelihood,
        )
        return self._run(work, requests, SampleReader(self._adapter.task_dict, True, self._adapter.visual_types))

    # ---- generation ----

    def _seeded_settings(self, request: Request) -> tuple[object, ...]:
        return dataclasses.astuple(self._adapter._settings(request)), request.seed(self._adapter.arguments.seed)

    def _group(self, request: Request) -> tuple[object, ...]:
        settings = self._adapter._settings(request)
        # Sampled replies are drawn one by one: in a batch they would depend on their neighbours.
        return settings, (request.name, request.repeat) if settings.temperature > 0 else None

    def _generation_item(self, sample: Sample) -> GenerationItem:
        prompt = self._adapter.encode(sample.request.context, list(sample.pictures.images))
        seed = sample.request.seed(self._adapter.arguments.seed)
        return GenerationItem(prompt, self._adapter._settings(sample.request), seed)

    def _generate_items(self, items: Sequence[GenerationItem]) -> list[Reply]:
        texts = self._adapter.generate_batch([item.prompt for item in items], items[0].settings, items[0].seed)
        return [text if isinstance(text, Reply) else Reply(text) for text in texts]

    # ---- scoring ----

    def _scoring_item(self, sample: Sample) -> Continuation:
        assert sample.continuation is not None
        return self._adapter.encode_pair(sample.request.context, sample.continuation, list(sample.pictures.images))

    # ---- both ----

    def _unit(self, request: Request) -> tuple[object, ...]:
        """Return what the options of a question have in common, which may share the pass over their prompt."""
        if self._adapter.arguments.prefix_cache:
            return request.task, request.split, request.doc_id, request.context
        return request.name, request.repeat

    def _run(self, work: Work[Item, Result], requests: Sequence[Request], reader: SampleReader) -> list[Result]:
        """Run one call of the harness: batches, bar, journal, failures; results in the order of ``requests``."""
        adapter, arguments = self._adapter, self._adapter.arguments
        if work.kind == "loglikelihood":
            # What shares a beginning has to lie in one batch.
            names = ImageNames(adapter.task_dict) if arguments.prefix_cache else unnamed
            streams = plan_streams(requests, work.group, self._unit, names)
        else:
            streams = plan_streams(requests, work.group, _alone)
        ledger = FailureLedger(work.kind, sum(not request.padding for request in requests), arguments.max_failed)
        room = BatchRoom(arguments.requests_per_batch, arguments.batch_tokens)
        bar: tqdm[Any]
        with tqdm(
            total=len(requests), desc=f"{adapter.model_id} {work.kind}", unit="request", disable=adapter.rank != 0
        ) as bar:
            loop = GuardedLoop(work, reader, room, ledger, self._opened_journal() if requests else None, bar)
            results = loop.run(requests, streams)
        if loop.replayed and loop.journal is not None:
            logger.info(
                "{} of {} {} answers come from the journal beside {}",
                loop.replayed,
                len(requests),
                work.kind,
                loop.journal.path,
            )
        ledger.settle()
        return results

    def _opened_journal(self) -> Journal | None:
        adapter = self._adapter
        folder = journal_folder(adapter.arguments.journal, adapter.model_id)
        if self._journal is None and folder is not None:
            self._fingerprint = model_fingerprint(
                adapter.model_id, type(adapter), adapter.arguments, adapter.device.type, adapter.fingerprint()
            )
            self._journal = Journal(folder, self._fingerprint, adapter.rank, adapter.world_size)
        return self._journal

    def _key(self, sample: Sample, detail: object) -> str:
        request = sample.request
        place = request.task, request.split, request.doc_id, request.index, request.repeat
        kind = "generation" if sample.continuation is None else "loglikelihood"
        return digest_of(self._fingerprint, kind, place, request.context, sample.pictures.digests, detail)


def _alone(request: Request) -> tuple[object, ...]:
    return request.name, request.repeat
