"""How the options of a served model can be scored: right behind the question, and by how many requests."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from medtasks.audit.doctor.drawn_questions import asked, drawn_prompt
from medtasks.audit.doctor.findings import MODEL, Finding, State, of_error
from medtasks.errors import MedTasksError
from medtasks.model_adapters.vlm_server import VlmServer
from medtasks.model_adapters.vlm_server.arguments import PROMPT_LOGPROBS, TOKEN_IDS
from medtasks.model_adapters.vlm_server.scoring import OptionScorer
from medtasks.model_adapters.vlm_server.sglang import SglangScorer

_LETTERS, _TEXTS = ("A", "B"), (" a small disc", " a disc that fills more than half of it")


@dataclass(frozen=True)
class _Proof:
    """How a scorer fared with options of one kind."""

    scorer: OptionScorer | SglangScorer | None  # none where the server was not even asked
    error: MedTasksError | None


def likelihoods(model: VlmServer, state: State) -> Iterator[Finding]:
    """Look at whether options are scored right behind the question, and by how many requests.

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
    if isinstance(texts.scorer, OptionScorer) and not (texts.error or letters.error):
        yield MODEL.ok("template", _template(model, texts.scorer))
    yield _way(model, texts.scorer if letters.error else letters.scorer)


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


def _template(model: VlmServer, scorer: OptionScorer) -> str:
    if model.arguments.likelihood == TOKEN_IDS:
        return f"options are sent as token ids, as likelihood={TOKEN_IDS} says, which no chat template can change"
    if scorer.blame:
        return f"the chat template {scorer.blame}, so that options are sent as token ids, which is exact"
    if scorer.boundary.put_before:
        return f"the chat template leaves {scorer.boundary.put_before!r} out before an option, which is put back"
    if scorer.boundary.taken_away:
        return f"the chat template begins a reply with {scorer.boundary.taken_away!r}, which is not sent twice"
    return "options stand right behind the question, which is proven with every answer"


def _way(model: VlmServer, scorer: OptionScorer | SglangScorer | None) -> Finding:
    if not isinstance(scorer, OptionScorer):
        found = "an option takes one request behind the cached question (SGLang's /generate), whose tokens are counted"
        return MODEL.ok("likelihoods", f"{found} as by {model.arguments.pretrained}")
    own = "takes one of its own (prompt_logprobs) or one per token, whichever is cheaper"
    slow = "every option takes one request that reads the question anew (prompt_logprobs)"
    if scorer.slow:
        fix = "a newer vLLM, with no router that drops fields before it, scores all letters in one request"
        return MODEL.note("likelihoods", f"{slow}: for one per question, {scorer.slow}", fix)
    if model.arguments.likelihood == PROMPT_LOGPROBS:
        return MODEL.ok("likelihoods", f"{slow}, as likelihood={PROMPT_LOGPROBS} says")
    if "letters" not in scorer.ways:
        return MODEL.ok("likelihoods", f"an option {own}")
    return MODEL.ok(
        "likelihoods", f"the letters of a question take one request (logprob_token_ids), a longer option {own}"
    )
