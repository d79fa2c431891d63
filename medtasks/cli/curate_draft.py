"""``medtasks curate draft``: let an LLM draft the questions of a study."""

from typing import Annotated

import typer

from medtasks.cli.curate import MaxRequests, StudyFolder, say_drafted
from medtasks.cli.curate_hallucination import draft_and_say
from medtasks.curate.drafts import DraftOutcome
from medtasks.curate.llm import open_llm
from medtasks.curate.pairs.categories import categorize, found_categories, given_categories
from medtasks.curate.pairs.pair_drafts import draft_pairs
from medtasks.curate.study import StudyKind, read_study
from medtasks.errors import MedTasksError

_FIND = "find"


def draft(
    folder: StudyFolder,
    categories: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...|find",
            help="Medical areas to sort images into, or 'find' to have the LLM find them in 100 captions first. "
            "Default: the paper's list.",
        ),
    ] = None,
    no_categories: Annotated[bool, typer.Option("--no-categories", help="Do not ask for the area of images.")] = False,
    max_requests: MaxRequests = None,
) -> None:
    """Let the LLM that MEDTASKS_JUDGE_* name draft a question for each pair, and sort the images into medical areas.

    In a study of hallucination questions it drafts what is missing. Run it again to go on where it stopped: what was
    answered is not asked for again.
    """
    if no_categories and categories is not None:
        raise MedTasksError("--categories and --no-categories contradict each other; leave one out")
    own = None if categories in (None, _FIND) else given_categories(str(categories))
    study = read_study(folder)
    llm = open_llm(study, max_requests)
    if study.kind is not StudyKind.PAIRS:
        if categories is not None:
            raise MedTasksError(f"--categories is for studies of pairs, and {folder} is one of {study.kind}")
        draft_and_say(folder, study.kind, llm)
        return
    counts = draft_pairs(folder, llm)
    if not no_categories and counts[DraftOutcome.DRAFTED]:
        counts += categorize(folder, llm, found_categories(folder, llm) if categories == _FIND else own)
    say_drafted(folder, counts)
