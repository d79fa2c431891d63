"""Answer rules by name, for task YAML and ``medtasks parse``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from medtasks.errors import unknown_name
from medtasks.extract import (
    chexbert_labels,
    likelihood,
    listed_options,
    medheval_open,
    medheval_reference,
    medheval_strict,
    mediconfusion_reference,
    multimedeval_labels,
    multimedeval_option,
    multimedeval_words,
    open_text,
    report_text,
    robust_choice,
    robust_class,
    robust_labels,
    robust_words,
    vlmevalkit_choice,
)
from medtasks.extract.answer import Answer
from medtasks.extract.label_answer import LabelAnswer
from medtasks.extract.medheval_question import ClosedRule

R = TypeVar("R")

TextRule = Callable[[str | None, Sequence[str]], Answer]
LabelRule = Callable[[str | None, Sequence[str]], LabelAnswer]
FreeTextRule = Callable[[str | None], medheval_open.OpenReply]


@dataclass(frozen=True)
class RegisteredRule(Generic[R]):
    """A rule with the facts that make its numbers reproducible.

    Attributes:
        name: Name used in YAML and on the command line.
        version: Raised when the rule's answers change.
        read: The rule.
        summary: One line.
    """

    name: str
    version: int
    read: R
    summary: str


_TEXT: tuple[RegisteredRule[TextRule], ...] = (
    RegisteredRule(
        "mediconfusion_reference", 1, mediconfusion_reference.read, "MediConfusion's published parser, exactly"
    ),
    RegisteredRule(
        "robust_choice", 2, robust_choice.read, "letters, option texts and refusals as a careful reader would"
    ),
    RegisteredRule(
        "robust_class", 1, robust_class.read, "option numbers, grades and class names as a careful reader would"
    ),
    RegisteredRule(
        "robust_yes_no_maybe", 1, robust_words.read_yes_no_maybe, "the verdict on a question as a careful reader would"
    ),
    RegisteredRule("robust_nli", 1, robust_words.read_nli, "the relation of two sentences as a careful reader would"),
    RegisteredRule(
        "multimedeval_option_head",
        1,
        multimedeval_option.multimedeval_option_head,
        "MultiMedEval, questions, cleaner at d9ac283: highest BLEU-1",
    ),
    RegisteredRule(
        "multimedeval_option_v0_1_0",
        1,
        multimedeval_option.multimedeval_option_v0_1_0,
        "MultiMedEval, questions, cleaner of v0.1.0: highest BLEU-1",
    ),
    RegisteredRule(
        "multimedeval_class_head",
        1,
        multimedeval_option.multimedeval_class_head,
        "MultiMedEval, images, cleaner at d9ac283: highest BLEU-1, else the first class",
    ),
    RegisteredRule(
        "multimedeval_class_v0_1_0",
        1,
        multimedeval_option.multimedeval_class_v0_1_0,
        "MultiMedEval, images, cleaner of v0.1.0: highest BLEU-1, else the first class",
    ),
    RegisteredRule(
        "multimedeval_yes_no_maybe_head",
        1,
        multimedeval_words.multimedeval_yes_no_maybe_head,
        "MultiMedEval, PubMedQA, cleaner at d9ac283: most frequent of yes, no, maybe",
    ),
    RegisteredRule(
        "multimedeval_yes_no_maybe_v0_1_0",
        1,
        multimedeval_words.multimedeval_yes_no_maybe_v0_1_0,
        "MultiMedEval, PubMedQA, cleaner of v0.1.0: most frequent of yes, no, maybe",
    ),
    RegisteredRule(
        "multimedeval_nli",
        1,
        multimedeval_words.multimedeval_nli,
        "MultiMedEval, MedNLI: the one label that occurs in the reply, with case",
    ),
    RegisteredRule(
        "vlmevalkit_2024_06",
        1,
        vlmevalkit_choice.vlmevalkit_2024_06,
        "VLMEvalKit of the published GMAI-MMBench numbers: a lone letter, else an option's text",
    ),
    RegisteredRule(
        "vlmevalkit_2026_06",
        1,
        vlmevalkit_choice.vlmevalkit_2026_06,
        "VLMEvalKit at 2cf2a36: a letter among the last four words, 'answer is c...', else an option's text",
    ),
)
_OPEN: tuple[RegisteredRule[open_text.OpenRule], ...] = (
    RegisteredRule(
        "multimedeval_vqa_head",
        1,
        open_text.multimedeval_vqa_head,
        "MultiMedEval, visual questions, cleaner at d9ac283: words shared with the key",
    ),
    RegisteredRule(
        "robust_vqa", 1, open_text.robust_vqa, "words shared with the key that the reply does not deny; clear yes or no"
    ),
)
_LABELS: tuple[RegisteredRule[LabelRule], ...] = (
    RegisteredRule(
        "multimedeval_labels_head",
        1,
        multimedeval_labels.multimedeval_labels_head,
        "MultiMedEval, ChestX-ray14, cleaner at d9ac283: labels with a BLEU-1 above one half",
    ),
    RegisteredRule(
        "multimedeval_labels_v0_1_0",
        1,
        multimedeval_labels.multimedeval_labels_v0_1_0,
        "MultiMedEval, ChestX-ray14, cleaner of v0.1.0: labels with a BLEU-1 above one half",
    ),
    RegisteredRule(
        "chexbert_labels",
        1,
        chexbert_labels.chexbert_labels,
        "MultiMedEval, MIMIC-CXR: conditions that CheXbert, or the labeler in MEDTASKS_LABELER, calls positive",
    ),
    RegisteredRule("robust_labels", 1, robust_labels.read_labels, "findings as a careful reader would"),
    RegisteredRule(
        "listed_options", 1, listed_options.listed_options, "all letters, else option texts, that the reply lists"
    ),
)
_REPORTS: tuple[RegisteredRule[report_text.ReportRule], ...] = (
    RegisteredRule("report_text", 1, report_text.read, "the reply as it stands, for metrics of report texts"),
)
_FREE: tuple[RegisteredRule[FreeTextRule], ...] = (
    RegisteredRule(
        "medheval_open_reference",
        1,
        medheval_open.medheval_open_reference,
        "MedHEval, open answers at 7f7d980: characters of 'Assistant:' cut from both ends, short reports replaced",
    ),
    RegisteredRule(
        "medheval_open_strict",
        1,
        medheval_open.medheval_open_strict,
        "MedHEval, open answers without reasoning and without a leading 'Assistant:'",
    ),
)
_CLOSED: tuple[RegisteredRule[ClosedRule], ...] = (
    RegisteredRule(
        "medheval_reference",
        1,
        medheval_reference.read,
        "MedHEval, closed questions at 7f7d980: what does not say no says yes; the option most similar to the reply",
    ),
    RegisteredRule(
        "medheval_strict", 1, medheval_strict.read, "MedHEval, closed questions as a careful reader would score them"
    ),
)
_LIKELIHOOD: tuple[RegisteredRule[likelihood.LikelihoodRule], ...] = (
    RegisteredRule("greedy_reference", 1, likelihood.greedy_reference, "most likely option, a tie goes to the first"),
    RegisteredRule("prefix_reference", 1, likelihood.prefix_reference, "most likely option, a tie goes to the last"),
    RegisteredRule("untied", 1, likelihood.untied, "most likely option, a tie is no answer"),
)
TEXT_RULES: Mapping[str, RegisteredRule[TextRule]] = MappingProxyType({rule.name: rule for rule in _TEXT})
LIKELIHOOD_RULES: Mapping[str, RegisteredRule[likelihood.LikelihoodRule]] = MappingProxyType(
    {rule.name: rule for rule in _LIKELIHOOD}
)

OPEN_RULES: Mapping[str, RegisteredRule[open_text.OpenRule]] = MappingProxyType({rule.name: rule for rule in _OPEN})
LABEL_RULES: Mapping[str, RegisteredRule[LabelRule]] = MappingProxyType({rule.name: rule for rule in _LABELS})
CLOSED_RULES: Mapping[str, RegisteredRule[ClosedRule]] = MappingProxyType({rule.name: rule for rule in _CLOSED})
FREE_TEXT_RULES: Mapping[str, RegisteredRule[FreeTextRule]] = MappingProxyType({rule.name: rule for rule in _FREE})
REPORT_RULES: Mapping[str, RegisteredRule[report_text.ReportRule]] = MappingProxyType(
    {rule.name: rule for rule in _REPORTS}
)


def text_rule(name: str) -> RegisteredRule[TextRule]:
    """Return the rule ``name`` that reads reply texts.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    if name not in TEXT_RULES:
        raise unknown_name("answer rule", name, TEXT_RULES)
    return TEXT_RULES[name]


def likelihood_rule(name: str) -> RegisteredRule[likelihood.LikelihoodRule]:
    """Return the rule ``name`` that reads option likelihoods.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    if name not in LIKELIHOOD_RULES:
        raise unknown_name("likelihood rule", name, LIKELIHOOD_RULES)
    return LIKELIHOOD_RULES[name]


def open_rule(name: str) -> RegisteredRule[open_text.OpenRule]:
    """Return the rule ``name`` that compares a reply with the key of an open question.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    if name not in OPEN_RULES:
        raise unknown_name("rule for open questions", name, OPEN_RULES)
    return OPEN_RULES[name]


def label_rule(name: str) -> RegisteredRule[LabelRule]:
    """Return the rule ``name`` that reads several labels from one reply.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    if name not in LABEL_RULES:
        raise unknown_name("label rule", name, LABEL_RULES)
    return LABEL_RULES[name]


def closed_rule(name: str) -> RegisteredRule[ClosedRule]:
    """Return the rule ``name`` that reads and judges replies to closed questions.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    if name not in CLOSED_RULES:
        raise unknown_name("rule for closed questions", name, CLOSED_RULES)
    return CLOSED_RULES[name]


def report_rule(name: str) -> RegisteredRule[report_text.ReportRule]:
    """Return the rule ``name`` that reads a reply as a report.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    if name not in REPORT_RULES:
        raise unknown_name("rule for reports", name, REPORT_RULES)
    return REPORT_RULES[name]


def free_text_rule(name: str) -> RegisteredRule[FreeTextRule]:
    """Return the rule ``name`` that says which part of a free reply is scored.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    if name not in FREE_TEXT_RULES:
        raise unknown_name("rule for free text", name, FREE_TEXT_RULES)
    return FREE_TEXT_RULES[name]


def reading_rule(name: str) -> RegisteredRule[Any]:
    """Return the rule ``name`` that reads reply texts, of whatever task family.

    Raises:
        UnknownName: There is no such rule; the message suggests the nearest name.
    """
    known: Mapping[str, RegisteredRule[Any]] = {
        **TEXT_RULES,
        **OPEN_RULES,
        **LABEL_RULES,
        **CLOSED_RULES,
        **REPORT_RULES,
        **FREE_TEXT_RULES,
    }
    if name not in known:
        raise unknown_name("answer rule", name, known)
    return known[name]
