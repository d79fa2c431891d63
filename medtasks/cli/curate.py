"""``medtasks curate``: build a benchmark from your own images and reports, step by step.

The steps are in :mod:`medtasks.curate`; commands only print their results and name the next one.
"""

import contextlib
import getpass
import math
import re
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from medtasks.cli.output import say, say_columns
from medtasks.cli.output import show as print_table
from medtasks.cli.prepare_command import report_prepared, say_how_to_publish
from medtasks.curate.drafts import (
    Draft,
    DraftOutcome,
    open_llm,
    read_drafts,
    read_journal_lines,
    tally,
)
from medtasks.curate.hallucination_questions import draft_hallucination, prompt_for
from medtasks.curate.pairs.pair_drafts import (
    CATEGORY_LIST,
    FAILURE_MODES,
    categorize,
    draft_pairs,
    given_categories,
    pairs_with_questions,
    write_category_list,
    write_failure_modes,
)
from medtasks.curate.report_studies import made_study, planned_study
from medtasks.curate.review.reviews import (
    DISAGREED,
    HIGHEST,
    LOWEST,
    PASSING,
    ReviewerAgreement,
    agreements,
    balance_answers,
    current,
    is_yes_no,
    read_reviews,
)
from medtasks.curate.study import StudyKind, checked_name, read_images, read_pairs, read_study
from medtasks.data.catalogue import MEDICONFUSION, Access
from medtasks.data.samples import option_index
from medtasks.errors import MedTasksError
from medtasks.report.tables import number_table

app = typer.Typer(
    help="Build a benchmark of your own from your images and reports.", no_args_is_help=True
)

StudyFolder = Annotated[Path, Argument(metavar="STUDY", help="Folder of the study.")]
StudyName = Annotated[
    str | None, Option(help="Name of dataset and tasks. Default: that of the folder.")
]
AccessLevel = Annotated[
    Access,
    Option(
        help="Access level of images and reports; credentialed ones stay on this machine.",
    ),
]
MaxRequests = Annotated[
    int | None,
    Option(
        min=0,
        help="Maximum number of requests; the next run continues. Also MEDTASKS_JUDGE_MAX_REQUESTS.",
    ),
]


_ENCODER = "hub id or folder (open_clip, transformers), hf_vlm:ID of a vision-language model, or module:factory"


@app.command()
def pairs(
    images: Annotated[
        Path,
        Argument(
            metavar="IMAGES.jsonl",
            help='Lines of {"id", "image", "caption"}, also "group" and "licence".',
        ),
    ],
    out: Annotated[Path, Option(metavar="STUDY", help="Folder of the new study.")],
    name: StudyName = None,
    access: AccessLevel = Access.CREDENTIALED,
    encoder: Annotated[
        str | None, Option(help=f"Medical encoder: {_ENCODER}.", show_default="BiomedCLIP")
    ] = None,
    general_encoder: Annotated[
        str | None,
        Option(
            help="Vision-only encoder, in the same form.", show_default="facebook/dinov2-base"
        ),
    ] = None,
    sim_med: Annotated[
        float, Option(min=-1, max=1, help="Minimum similarity to the medical encoder.")
    ] = 0.9,
    sim_gen: Annotated[
        float, Option(min=-1, max=1, help="Maximum similarity to the vision-only encoder.")
    ] = 0.75,
    per_image: Annotated[
        int | None,
        Option(
            min=1,
            help="Maximum number of pairs per image, largest gaps first.",
            show_default="unlimited",
        ),
    ] = None,
    keep_near_duplicates: Annotated[
        bool, Option("--keep-near-duplicates", help="Keep pairs of equal images.")
    ] = False,
    batch_size: Annotated[int, Option(min=1, help="Images per batch of an encoder.")] = 16,
    device: Annotated[
        str | None, Option(help="cpu, cuda or cuda:N.", show_default="a GPU if there is one")
    ] = None,
) -> None:
    """Find confusing pairs of images: similar to a medical encoder, but not to a vision-only one.

    Two images of one group (patient, study, article) are never a pair. Embeddings are kept, so that an interrupted run
    continues where it stopped.
    """
    from medtasks.curate.pairs.encoders import GENERAL, MEDICAL
    from medtasks.curate.pairs.pair_search import MOST_PAIRS, PairOptions, make_pair_study

    options = PairOptions(
        encoder or MEDICAL,
        general_encoder or GENERAL,
        sim_med,
        sim_gen,
        per_image,
        keep_near_duplicates,
    )
    chosen = checked_name(name or out.absolute().name)
    study, confusing, unused = make_pair_study(
        images, out, chosen, access, options, batch_size, device
    )
    if unused:
        say(f"Keys of {images.name} that are not used: {', '.join(unused)}")
    if confusing is None:
        say(f"{out} exists already with the same settings; nothing was changed.")
    elif confusing.more:
        say(
            f"There are more than {MOST_PAIRS:,} confusing pairs; only those with the largest gaps were considered."
        )
    counts = study.made_with["counts"]
    say_columns([(str(count), description) for description, count in counts.items()])
    requests = counts["pairs chosen"] + len(read_images(out))
    say(
        f"Next: medtasks curate draft {out}",
        f"That is about {requests:,} requests to an LLM, one per pair and image; --per-image 1 makes fewer pairs.",
    )


@app.command()
def hallucination(
    reports: Annotated[
        Path,
        Argument(
            metavar="REPORTS.jsonl",
            help="One image per line: id, image, report; by kind also notes, metadata, qa_pairs, bounding_boxes.",
        ),
    ],
    kind: Annotated[
        Literal[
            "visual_closed", "visual_open", "knowledge_closed", "knowledge_open", "contextual"
        ],
        Option(help="Kind of questions."),
    ],
    out: Annotated[
        Path, Option(metavar="STUDY", help="Folder of the study; an existing one is continued.")
    ],
    name: StudyName = None,
    access: AccessLevel = Access.CREDENTIALED,
    knowledge: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE_OR_FOLDER",
            help="Texts to retrieve from (.txt, .md, .jsonl with text), for knowledge_open; repeatable.",
        ),
    ] = None,
    passages: Annotated[
        int, Option(min=1, help="Number of passages to retrieve per report.")
    ] = 5,
    max_requests: MaxRequests = None,
) -> None:
    """Draft hallucination questions from reports. An interrupted run continues where it stopped.

    The LLM is an OpenAI-compatible endpoint, set like a judge: MEDTASKS_JUDGE_BASE_URL and MEDTASKS_JUDGE_MODEL.
    """
    texts = tuple(knowledge or ())
    planned = planned_study(reports, out, StudyKind(kind), name, access, texts, passages)
    llm = open_llm(planned, max_requests)
    study = made_study(out, planned, texts)
    images = read_images(out).values()
    sources = Counter(prompt_for(study.kind, image).source for image in images)
    prompts = ", ".join(f"{source} ({count})" for source, count in sorted(sources.items()))
    say(f"{study.name}: {study.kind}, {study.access}, {len(images)} images; asked by {prompts}")
    for reason, count in study.made_with["counts"].items():
        say(f"{count} left out: {reason}")
    _print_draft_counts(out, draft_hallucination(out, study.kind, llm))


def _print_draft_counts(folder: Path, counts: Counter[DraftOutcome]) -> None:
    """Print drafts and outcomes, and the next step.

    Raises:
        MedTasksError: Every request that was sent failed.
    """
    study = read_study(folder)
    if study.kind is not StudyKind.PAIRS:
        _print_answers(read_drafts(folder))
    _print_outcomes(folder, study.kind)
    answered = counts.keys() - {
        DraftOutcome.FAILED,
        DraftOutcome.NOT_ASKED,
        DraftOutcome.SKIPPED,
    }
    if counts[DraftOutcome.FAILED] and not answered:
        lines = read_journal_lines(folder).values()
        causes = (line.reason for line in lines if line.outcome is DraftOutcome.FAILED)
        raise MedTasksError(
            f"every request that was sent failed: {next(causes)}; fix that and run the same command again"
        )
    if counts[DraftOutcome.FAILED] or counts[DraftOutcome.NOT_ASKED]:
        say("Some requests failed or were not sent; run the same command again to continue.")
    if read_drafts(folder):
        say(f"Next: medtasks curate review {folder}, then medtasks curate publish {folder}")


def _print_answers(drafts: Mapping[str, Draft]) -> None:
    """Print the right answers of drafts by type, and what publishing leaves out to balance them."""
    if any(draft.options for draft in drafts.values()):
        say_columns(_answer_rows(drafts))
    _, surplus = balance_answers(drafts)
    for reason, count in surplus.items():
        say(f"{reason}: {count} questions, which publishing leaves out to balance the answers")


def _answer_rows(drafts: Mapping[str, Draft]) -> Sequence[Sequence[str]]:
    """Return headings, then the numbers of right answers of each type of drafts: words or letters."""
    drafts_by_type: dict[str, list[Draft]] = {}
    for draft in drafts.values():
        drafts_by_type.setdefault(draft.hallucination or "", []).append(draft)
    rows = [("type", "drafts", "yes", "no", "letters of other options")]
    for kind_of_error, typed in sorted(drafts_by_type.items()):
        words: Counter[str] = Counter()
        letters: Counter[str] = Counter()
        for draft in typed:
            answer = draft.answers[0]
            if is_yes_no(draft):
                words[draft.options[option_index(answer)]] += 1
            elif draft.options:
                letters[answer] += 1
        others = ", ".join(f"{letter} {count}" for letter, count in sorted(letters.items()))
        number = str(len(typed))
        rows.append(
            (kind_of_error or "all", number, str(words["Yes"]), str(words["No"]), others)
        )
    return rows


def _print_outcomes(folder: Path, kind: StudyKind) -> None:
    """Print the number of requests and drafts with each outcome and reason."""
    rows = [(str(number), *outcome) for outcome, number in sorted(tally(folder, kind).items())]
    say_columns([("number", "of", "outcome", "reason"), *rows])


@app.command()
def draft(
    folder: StudyFolder,
    categories: Annotated[
        str | None,
        Option(
            metavar="NAME,NAME,...",
            help="Medical areas to sort images into. Default: the paper's list.",
        ),
    ] = None,
    no_categories: Annotated[
        bool, Option("--no-categories", help="Do not sort images into areas.")
    ] = False,
    max_requests: MaxRequests = None,
) -> None:
    """Let the LLM of MEDTASKS_JUDGE_* draft a question for each pair, and sort the images into medical areas.

    In a study of hallucination questions it drafts the missing ones. Run it again to continue where it stopped:
    answered requests are not repeated.
    """
    if no_categories and categories is not None:
        raise MedTasksError(
            "--categories and --no-categories contradict each other; leave one out"
        )
    areas = None if categories is None else given_categories(categories)
    study = read_study(folder)
    llm = open_llm(study, max_requests)
    if study.kind is not StudyKind.PAIRS:
        if categories is not None:
            raise MedTasksError(
                f"--categories is for studies of pairs, and {folder} is one of {study.kind}"
            )
        counts = draft_hallucination(folder, study.kind, llm)
    else:
        counts = draft_pairs(folder, llm)
        if not no_categories and counts[DraftOutcome.DRAFTED]:
            counts += categorize(folder, llm, areas)
    _print_draft_counts(folder, counts)


@app.command()
def review(
    folder: StudyFolder,
    reviewer: Annotated[
        str | None, Option(help="Name of the reviewer. Default: your login name.")
    ] = None,
    port: Annotated[
        int | None, Option(min=1, max=65535, help="Port of the page. Default: any free one.")
    ] = None,
    status: Annotated[
        bool,
        Option(
            "--status",
            help="Only print what was drafted and reviewed, and how reviewers agree.",
        ),
    ] = False,
) -> None:
    """Review and correct the drafts of a study on a local page: correctness, relevance, language, score 1-10.

    Nothing leaves the machine. Each reviewer has a file of their own, saved after every keystroke.
    """
    study = read_study(folder)
    if status:
        _print_state(folder)
    else:
        from medtasks.curate.review.review_server import ReviewServer, open_reviewer_file

        try:
            name = reviewer or re.sub(r"[^\w-]", "-", getpass.getuser())
        except (KeyError, OSError):
            raise MedTasksError(
                "your login name is unknown here; name the reviewer with --reviewer"
            ) from None
        with open_reviewer_file(folder, name) as file:
            for ending in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(ending, signal.default_int_handler)  # as Ctrl-C does
            with ReviewServer(file, port) as server, contextlib.suppress(KeyboardInterrupt):
                say(
                    f"{study.name}, reviewed by {name}: {server.url}",
                    "Open it in a browser on this machine; Ctrl-C ends the review.",
                )
                server.serve_forever(poll_interval=0.2)
            say(f"{file.summary()}; {file.path}")
    results = agreements(read_reviews(folder, study), read_drafts(folder), read_images(folder))
    if not results and status:
        say("There are fewer than two reviewers, so there is no agreement to compute.")
    _print_agreements(results)


def _print_agreements(results: Sequence[ReviewerAgreement]) -> None:
    """Print a table for each two reviewers, and what to know about reviewers with the same verdict throughout."""
    for pair in dict.fromkeys(result.reviewers for result in results):
        pair_results = [result for result in results if result.reviewers == pair]
        head = (" and ".join(pair), "questions", "equal", "kappa", "95 % interval")
        print_table(number_table("", head, map(_agreement_row, pair_results)))
        say(
            *dict.fromkeys(
                _constant_remark(result) for result in pair_results if result.constant
            )
        )


def _agreement_row(result: ReviewerAgreement) -> tuple[str, str, str, str, str]:
    """Return what two reviewers judged, questions in common, share of equal verdicts, kappa and its interval.

    An undefined kappa or interval (NaN) is called so.
    """
    if not result.questions:
        return result.what, "0", "-", "nothing in common", "-"
    kappa = "undefined" if math.isnan(result.kappa) else f"{result.kappa:.2f}"
    interval = f"{result.low:.2f} to {result.high:.2f}"
    if math.isnan(result.low):
        interval = "undefined"
    return result.what, str(result.questions), f"{result.equal:.0%}", kappa, interval


def _constant_remark(result: ReviewerAgreement) -> str:
    """Say which reviewers gave every question the same verdict, and what that makes of kappa."""
    is_undefined = math.isnan(result.kappa)
    kappa = "not defined" if is_undefined else "0"
    who = "both" if is_undefined else "each"
    if len(result.constant) == 1:
        who = result.constant[0]
    return f"{result.what}: {who} said the same of every question, so kappa is {kappa}."


@app.command()
def publish(
    folder: StudyFolder,
    min_score: Annotated[
        int, Option(min=LOWEST, max=HIGHEST, help="Minimum score from every reviewer.")
    ] = PASSING,
    name: Annotated[
        str | None,
        Option("--as", help="Name of dataset and tasks. Default: that of the study."),
    ] = None,
    wording: Annotated[
        str | None,
        Option(metavar="REVIEWER", help="Reviewer whose wording counts if they differ."),
    ] = None,
    balance: Annotated[
        bool, Option(help="Hallucination studies: balance yes/no by leaving some out.")
    ] = True,
    allow_incomplete: Annotated[
        bool,
        Option(
            "--allow-incomplete",
            help="Leave out questions whose image is missing; results will say so.",
        ),
    ] = False,
) -> None:
    """Make a dataset and tasks of the questions that passed review. Repeat it after more reviews."""
    from medtasks.curate.publishing import publish_study

    manifest, tasks, groups, sheet = publish_study(
        folder,
        min_score,
        name=name,
        wording=wording,
        balance=balance,
        allow_incomplete=allow_incomplete,
    )
    report_prepared(manifest)
    _print_counts(sheet)
    say(f"Datasheet: {folder / 'datasheet.md'}")
    for task in (*tasks, *groups):
        say(f"  {task}")
    if manifest.access == Access.CREDENTIALED:
        say(
            "It is credentialed like its study: models and judges on other machines may not see it."
        )
    say(f"Run it with 'lmms_eval --tasks {','.join(groups[:1] or tasks)}'")
    say_how_to_publish(manifest)


def _print_counts(sheet: Mapping[str, Any]) -> None:
    """Print how many drafts of a datasheet were published or left out, and their right answers."""
    rows = [(f"of {sheet['drafts']} drafts", "number"), ("published", str(sheet["published"]))]
    rows += [(reason, str(count)) for reason, count in sheet["left_out"].items()]
    say_columns(rows)
    if DISAGREED in sheet["left_out"]:
        say("Where reviewers differ in the wording, choose one with --wording REVIEWER.")
    if sheet["labels"]:
        labels = [f"{label} {count}" for label, count in sheet["labels"].items()]
        say(f"Right answers: {', '.join(labels)}")
    if sheet["kind"] == StudyKind.PAIRS and sheet["clusters"] < sheet["published"]:
        say(sheet["caveats"][-1])  # that pairs share images or patients


@app.command()
def patterns(
    name: Annotated[
        str,
        Argument(
            metavar="STUDY|mediconfusion", help="Folder of a study of pairs, or mediconfusion."
        ),
    ],
    source: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder with MediConfusion's dataset.json.")
    ] = None,
    file: Annotated[
        Path | None,
        Option("--out", metavar="FILE", help=f"File to write. Default: STUDY/{FAILURE_MODES}."),
    ] = None,
    max_requests: MaxRequests = None,
) -> None:
    """Let the LLM of MEDTASKS_JUDGE_* name failure modes from captions and questions, 100 pairs at a time."""
    is_published = name == MEDICONFUSION.name and not Path(name, "study.json").exists()
    folder = None if is_published else Path(name)
    study, blocks = pairs_with_questions(folder, source)
    path = file or (folder or Path()) / FAILURE_MODES
    counts = write_failure_modes(study.name, blocks, open_llm(study, max_requests), path)
    say(f"{path}: {counts[DraftOutcome.DRAFTED]} of {counts.total()} requests answered")


@app.command()
def categories(folder: StudyFolder) -> None:
    """Let the LLM of MEDTASKS_JUDGE_* name medical areas of up to 100 captions, for an expert to correct."""
    study = read_study(folder, StudyKind.PAIRS)
    path = folder / CATEGORY_LIST
    count = write_category_list(folder, open_llm(study, None), path)
    say(
        f"{path}: areas of {count} captions, for an expert to correct",
        f'Next: medtasks curate draft {folder} --categories "NAME,NAME,..."',
    )


def _print_state(folder: Path) -> None:
    """Print the contents of a study, the outcome of each request and draft, and the progress of reviewers."""
    study = read_study(folder)
    drafts = read_drafts(folder)
    pairs = ""
    if study.kind is StudyKind.PAIRS:
        pairs = f", {len(read_pairs(folder))} pairs"
    say(
        f"{study.name}: {study.kind}, {study.access}, {len(read_images(folder))} images{pairs}, {len(drafts)} drafts"
    )
    _print_outcomes(folder, study.kind)
    for review in read_reviews(folder, study):
        verdicts = current(review, drafts).values()
        scored = [verdict for verdict in verdicts if verdict.scores is not None]
        say(f"{review.reviewer}: scored {len(scored)} of {len(drafts)} drafts")
