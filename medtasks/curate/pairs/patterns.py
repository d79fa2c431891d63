"""Failure modes that pairs probe: in words by an LLM, and in numbers from results of models.

An LLM names them with MediConfusion's prompt A.3 (arXiv 2409.15477, section 4.1). The pairs are those of a study or the
published ones. The paper's radiologist corrected the LLM's list: it is a draft for an expert, no result.

MediConfusion selects pairs whose images a medical encoder finds alike and another encoder does not, because models
should confuse them, the more the wider the gap (section 2). Results of models show whether they do. A pair with an
answer that failed, was not judged or not asked is only counted.
"""

import enum
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from medtasks import __version__
from medtasks.audit.report.contents import as_json
from medtasks.audit.scoring import rows_of
from medtasks.curate.drafts import DraftOutcome, ask, free_text, one_line, prompts_in, read_drafts
from medtasks.curate.pairs.pair_drafts import PROMPTS
from medtasks.curate.study import (
    ImagePair,
    Study,
    StudyKind,
    problem_of,
    read_images,
    read_pairs,
    read_study,
    write_private,
)
from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.privacy import LOG_TEXT_VARIABLE
from medtasks.errors import MedTasksError, RepliesError, SourceError, WithheldReply
from medtasks.families.counts import judged
from medtasks.families.paired_choice import paired_answers
from medtasks.home import dataset_folder
from medtasks.judges.judge_client import Judge
from medtasks.metrics.metric import Score
from medtasks.metrics.pairs import complete_pairs
from medtasks.runs.replies import read_replies
from medtasks.runs.run import Source, check_fingerprints, samples_by_task
from medtasks.stats.bootstrap import RESAMPLES, SEED, rank_correlation, rank_correlation_interval
from medtasks.stats.intervals import LEVEL
from medtasks.stats.standard_error import connected_components
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_files import task_files

PAIRS_PER_REQUEST = 100
FILE = "patterns.md"


@dataclass(frozen=True)
class KnownPair:
    """One pair with the texts that an LLM reads."""

    pair: ImagePair
    captions: tuple[str, str]
    question: str = ""  # empty if none was drafted
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownPairs:
    """Pairs of one benchmark."""

    study: Study  # for published pairs, what their study would be
    pairs: Mapping[str, KnownPair]  # by id, in their order


def pairs_of_study(folder: Path) -> KnownPairs:
    """Return the pairs of a study, drafted or not."""
    study = read_study(folder, StudyKind.PAIRS)
    images, drafts = read_images(folder), read_drafts(folder)
    pairs = {}
    for pair in read_pairs(folder):
        first, second = (images[name].text if name in images else "" for name in pair.images)
        draft = drafts.get(pair.pair_id)
        drafted = ("", ()) if draft is None else (draft.question, draft.options)
        pairs[pair.pair_id] = KnownPair(pair, (first, second), *drafted)
    return KnownPairs(study, pairs)


class _Published(BaseModel):
    """The fields used of a record of ``dataset.json``."""

    im_1_local: str = Field("", coerce_numbers_to_str=True)
    im_2_local: str = Field("", coerce_numbers_to_str=True)
    BiomedCLIP_sim: float
    DINO_sim: float
    cap_1: str
    cap_2: str
    question: str
    option_A: str
    option_B: str


def published_pairs(source: Path | None) -> KnownPairs:
    """Return the pairs of MediConfusion's published ``dataset.json``, in ``source`` or where it was prepared from."""
    name = MEDICONFUSION.name
    try:
        folder = str(source or Manifest.read(dataset_folder(name)).source)
    except FileNotFoundError:
        raise SourceError(f"'{name}' is not prepared; give the folder of its dataset.json with --source") from None
    path = Path(folder, "dataset.json")
    if not path.is_file():
        path = Path(folder, "data/dataset.json")
    if not path.is_file():
        raise SourceError(
            f"{folder} is no folder with dataset.json, which holds captions and similarities of '{name}'; give its "
            f"folder with --source"
        )
    try:
        records = TypeAdapter(dict[str, _Published]).validate_json(path.read_bytes())
    except ValidationError as error:
        raise SourceError(
            f"{path} is malformed ({problem_of(error)}); get it again from {MEDICONFUSION.source}"
        ) from None
    pairs = {}
    for pair_id, record in records.items():
        images = (record.im_1_local, record.im_2_local)
        pair = ImagePair(pair_id=pair_id, images=images, sim_med=record.BiomedCLIP_sim, sim_gen=record.DINO_sim)
        options = (record.option_A, record.option_B)
        pairs[pair_id] = KnownPair(pair, (record.cap_1, record.cap_2), record.question, options)
    return KnownPairs(Study(name=name, kind=StudyKind.PAIRS, access=MEDICONFUSION.access, source=str(path)), pairs)


def write_failure_modes(benchmark: KnownPairs, llm: Judge, path: Path) -> Counter[DraftOutcome]:
    """Ask about all pairs with a question, 100 at a time, and write the replies; count the outcomes.

    The LLM's cache keeps replies, so that a later run sends only the requests that failed.
    """
    name, pairs = benchmark.study.name, [pair for pair in benchmark.pairs.values() if pair.question]
    if not pairs:
        raise MedTasksError(f"no pair of '{name}' has a question; draft some with 'medtasks curate draft'")
    parts = [pairs[start : start + PAIRS_PER_REQUEST] for start in range(0, len(pairs), PAIRS_PER_REQUEST)]
    prompt = prompts_in(PROMPTS)["failure_modes"]
    requests = []
    for part in parts:
        blocks = []
        for number, pair in enumerate(part):
            options = [f"({letter}) {option}" for letter, option in zip("AB", pair.options, strict=True)]
            captions = {f"**IMAGE {image} CAPTION**": one_line(text) for image, text in enumerate(pair.captions, 1)}
            question = " ".join([one_line(pair.question), *options])
            blocks.append({"Pair 0": f"Pair {number}", **captions, "**QUESTION**": question})
        requests.append(prompt.with_blocks(blocks))
    with ThreadPoolExecutor(llm.settings.concurrency) as workers:
        replies = list(workers.map(lambda request: ask(llm, prompt, request, free_text), requests))
    counts = Counter(reply.outcome for reply in replies)
    if not counts[DraftOutcome.DRAFTED]:
        raise MedTasksError(f"the LLM named no failure modes: {replies[-1].reason}; nothing was written")
    heading = f"Drafted by {llm.settings.label} with prompt {prompt.label}, for an expert to correct."
    texts = [f"# Failure modes of {name}\n\n{heading}"]
    for part, reply in zip(parts, replies, strict=True):
        sent = ", ".join(f"{number}: {item.pair.pair_id}" for number, item in enumerate(part))
        texts.append(f"## {len(part)} pairs, {part[0].pair.pair_id} to {part[-1].pair.pair_id}")
        texts.append(reply.value or f"No reply: {reply.reason}.")
        texts.append(f"Pairs by their number in the prompt: {sent}")
    write_private(path, "\n\n".join(texts) + "\n")
    return counts


class PairState(enum.StrEnum):
    """Outcome of a pair."""

    SOLVED = "solved"
    CONFUSED = "confused"  # the same option for both images
    WRONG = "wrong"  # each option for the other image
    INVALID = "invalid"  # a reply names no option
    FAILED = "failed"  # an answer failed, was not judged or not asked


ERRORS = (PairState.CONFUSED, PairState.WRONG, PairState.INVALID)
_OUTCOMES: Mapping[str, Mapping[PairState, float]] = {
    "error": {PairState.SOLVED: 0.0, **dict.fromkeys(ERRORS, 1.0)},
    "confusion": {PairState.SOLVED: 0.0, PairState.WRONG: 0.0, PairState.CONFUSED: 1.0},
}
States = Mapping[str, PairState]
"""Outcome of each pair in one task of one run, by pair id."""


@dataclass(frozen=True)
class ModelPairs:
    """Outcomes of pairs in one task of one run."""

    model: str
    run: str  # folder or file
    task: str
    rule: str  # row of results and its extractor
    states: States


def find_patterns(name: str, pairs: Mapping[str, ImagePair], models: Sequence[ModelPairs]) -> dict[str, Any]:
    """Return the results of models, all of tasks of one dataset, as JSON values; MedTasksError for more than 26."""
    if len(models) > len(ascii_uppercase):
        raise MedTasksError(f"expected at most {len(ascii_uppercase)} tasks of runs, but got {len(models)}")
    pairs = {pair_id: pairs[pair_id] for pair_id in models[0].states}
    states = {letter: model.states for letter, model in zip(ascii_uppercase, models, strict=False)}
    described: dict[str, Any] = {}
    for letter, model in zip(states, models, strict=True):
        counts = Counter(model.states.values())
        described[letter] = {"model": model.model, "run": model.run, "task": model.task, "rule": model.rule}
        described[letter]["pairs"] = {str(state): counts[state] for state in PairState}
    ordered = []
    for pair_id in most_confusing(pairs, list(states.values())):
        pair = pairs[pair_id]
        ordered.append({"pair_id": pair_id, "sim_med": pair.sim_med, "sim_gen": pair.sim_gen, "gap": pair.gap})
        ordered[-1]["states"] = {letter: str(of_model[pair_id]) for letter, of_model in states.items()}
    return {
        "schema_version": 2,
        "medtasks": __version__,
        "name": name,
        "settings": {"resamples": RESAMPLES, "seed": SEED, "level": LEVEL},
        "models": described,
        "pairs": ordered,
        "associations": as_json(associations(pairs, states)),
    }


def outcome_of(states: Sequence[States], outcome: str) -> dict[str, float]:
    """Return the mean over models of an outcome, by id of the pairs for which any has a value."""
    worth = _OUTCOMES[outcome]
    means = {}
    for pair_id in states[0]:
        if values := [worth[of_model[pair_id]] for of_model in states if of_model[pair_id] in worth]:
            means[pair_id] = math.fsum(values) / len(values)
    return means


def associations(pairs: Mapping[str, ImagePair], models: Mapping[str, States]) -> list[dict[str, Any]]:
    """Return Spearman's rank correlations of outcomes with gap and similarity, with the ends of their 95 % intervals.

    They are for each model by its letter and for the mean of several, "all". The outcome "error" is a pair that is not
    solved; "confusion" the same option twice, of pairs with two valid answers. Pairs that images connect are one
    cluster. A correlation is NaN where nothing varies.
    """
    clusters = dict(zip(pairs, connected_components([pair.images for pair in pairs.values()]), strict=True))
    columns = {model: [states] for model, states in models.items()}
    if len(models) > 1:
        columns["all"] = list(models.values())
    correlations = []
    for (model, states), outcome, by in itertools.product(columns.items(), _OUTCOMES, ("gap", "sim_med")):
        values = outcome_of(states, outcome)
        groups = [clusters[pair_id] for pair_id in values]
        similar, outcomes = [float(getattr(pairs[pair_id], by)) for pair_id in values], list(values.values())
        about = {"model": model, "outcome": outcome, "by": by, "pairs": len(values), "clusters": len(set(groups))}
        low, high = rank_correlation_interval(similar, outcomes, groups)
        correlations.append(about | {"correlation": rank_correlation(similar, outcomes), "low": low, "high": high})
    return correlations


def most_confusing(pairs: Mapping[str, ImagePair], states: Sequence[States]) -> list[str]:
    """Sort pair ids: those that confuse most models first, then those that fewest solve, then the widest gap."""

    def rank(pair_id: str) -> tuple[float, ...]:
        counts = Counter(of_model[pair_id] for of_model in states)
        return -counts[PairState.CONFUSED], -sum(counts[state] for state in ERRORS), -pairs[pair_id].gap

    return sorted(pairs, key=lambda pair_id: (rank(pair_id), pair_id))


def read_models(
    name: str, pairs: Mapping[str, ImagePair], runs: Sequence[Path]
) -> tuple[list[ModelPairs], dict[str, str]]:
    """Return the outcomes of pairs in runs (folders or samples files), and the reason for each task left out.

    MedTasksError: a run holds no samples of the dataset's tasks, or no task could be read.
    """
    tasks = {
        task.name: task
        for task in task_files().values()
        if task.dataset == name and task.kind == "task" and task.has_family and task.family.paired
    }
    if not tasks:
        raise RepliesError(
            f"no task asks the pairs of '{name}'; publish the study with 'medtasks curate publish' first, or say with "
            f"--as what it was published as"
        )
    models, causes = [], {}
    for run in runs:
        source = Source(run)
        files = {task: file for task, file in samples_by_task(source).items() if task in tasks}
        if not files:
            raise RepliesError(f"{run} holds no samples of {' or '.join(tasks)}; run one of them with --log_samples")
        model = source.run.model if run.is_dir() else run.stem
        for task, file in files.items():
            try:
                documents = task_documents(tasks[task])
                check_fingerprints([file], task, task_provenance(tasks[task], documents)["fingerprint"])
                replies = read_replies(file, documents)
                answered = [document for document in documents if document["doc_id"] in replies]
                rows = rows_of(tasks[task], answered, replies)
                row = next(
                    (name for name in ("robust", "fenced") if name in rows), next(iter(rows))
                )  # the careful rows
                published = dict.fromkeys(str(document["pair_id"]) for document in documents)
                states = pair_states(rows[row][1], [pair_id for pair_id in published if pair_id in pairs])
                if not states:
                    raise RepliesError(
                        f"'{task}' asks none of these pairs; is this the study, or source, it was made from?"
                    )
                models.append(ModelPairs(model, str(run), task, f"{row}, {rows[row][0]}", states))
            except WithheldReply:  # likelihoods are not
                causes[f"{task} of {run}"] = (
                    f"'{name}' is credentialed, so that its samples file holds no replies; run it again with "
                    f"{LOG_TEXT_VARIABLE}={name} set, if whoever sees the file may see them"
                )
            except MedTasksError as error:
                causes[f"{task} of {run}"] = str(error)
    if not models:
        raise RepliesError(f"no results could be read ({'; '.join(f'{of}: {why}' for of, why in causes.items())})")
    return models, causes


def pair_states(scores: Sequence[Score], pairs: Iterable[str]) -> dict[str, PairState]:
    """Return the outcome of some pairs, by id, from scores of a paired task in any order."""
    states = {}
    for pair in complete_pairs(paired_answers(judged(scores))):
        if pair.solved:
            state = PairState.SOLVED
        elif pair.valid:
            state = PairState.CONFUSED if pair.confused else PairState.WRONG
        else:
            state = PairState.INVALID
        states[pair.first.pair_id] = state
    return {pair_id: states.get(pair_id, PairState.FAILED) for pair_id in pairs}
