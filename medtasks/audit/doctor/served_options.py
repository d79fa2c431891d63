"""Likelihoods of options from a served model: whether it can score them, and by how many requests."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from medtasks.audit.doctor.drawn_questions import asked, drawn_prompt
from medtasks.audit.doctor.findings import MODEL, Finding, State, of_error
from medtasks.errors import MedTasksError
from medtasks.model_adapters.vlm_server import VlmServer
from medtasks.model_adapters.vlm_server.scoring import OptionScorer
from medtasks.model_adapters.vlm_server.sglang import SglangScorer

_LETTERS, _TEXTS = ("A", "B"), (" a small disc", " a disc that fills more than half of it")


@dataclass(frozen=True)
class _Proof:
    """How a scorer fared with options of one kind."""

    scorer: OptionScorer | SglangScorer | None  # none where the server was not even asked
    error: MedTasksError | None


def likelihoods(model: VlmServer, state: State) -> Iterator[Finding]:
    """Check that options are scored right after the question, and by how many requests.

    Texts begin with a blank, as most tasks have them, and letters do not: a template can be in the way of either.
    """
    texts, letters = (_proof(model, options) for options in (_TEXTS, _LETTERS))
    if texts.error and letters.error:
        yield of_error(MODEL, "likelihoods", state, texts.error, "run the model with --model hf_vlm")
        return
    for proof, kind in ((texts, "that begin with a blank"), (letters, "that begin without a blank")):
        if proof.error:
            finding = of_error(MODEL, "template", state, proof.error, "serve it with --enable-scale-out")
            yield replace(finding, found=f"for options {kind}, {finding.found}")
    scorer = texts.scorer if letters.error else letters.scorer
    if isinstance(scorer, OptionScorer) and scorer.slow:
        slow = "every option takes one request that reads the question anew (prompt_logprobs)"
        fix = "a newer vLLM, with no router that drops fields before it, scores all letters in one request"
        yield MODEL.note("likelihoods", f"{slow}: for one per question, {scorer.slow}", fix)
    else:
        yield MODEL.ok("likelihoods", "options are scored right after the question")


def _proof(model: VlmServer, options: tuple[str, ...]) -> _Proof:
    try:
        scorer = model.new_scorer()
    except MedTasksError as error:
        return _Proof(None, error)

    async def score() -> None:
        for text in ("picture", "image"):  # the second question is scored as all that follow it
            outcomes = await scorer.scores(drawn_prompt(model, text, 1), options)
            for error in (one for one in outcomes if isinstance(one, MedTasksError)):
                raise error

    try:
        asked(model, score())
    except MedTasksError as error:
        return _Proof(scorer, error)
    return _Proof(scorer, None)
