"""What MedEvalKit's faults do to a model that answers right, written as tables into the page of its tasks.

    python benchmarks/medevalkit_faults.py DATA

DATA holds MedXpertQA-MM's 2,000 questions (``medxpertqa/medxpertqa_mm_input.jsonl``) and 244 of MedXpertQA-Text, those
that its authors drew (``medxpertqa/medxpertqa_sampled_text_input.jsonl``). All other questions and all
replies are made up, those of the judge are scripted, and nothing is downloaded. Each number goes the way of every other
one: rule, family, metrics.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families import choice, kit_questions
from medtasks.families.family import Reply, Rule, TaskFamily
from medtasks.judges.judge_client import JudgeVerdict
from medtasks.metrics.metric import evaluate

PAGE = Path(__file__).parents[1] / "tasks_yaml" / "medevalkit" / "README.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
QUESTIONS = Path("medxpertqa", "medxpertqa_mm_input.jsonl")
TEXTS = Path("medxpertqa", "medxpertqa_sampled_text_input.jsonl")


def page_with_tables(page: str, data: Path) -> str:
    """Return the page with new tables between the two marks."""
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    return (
        f"{before}{BEGIN}\n\n{tables(medxpertqa(data), medxpertqa(data, TEXTS))}\n{END}{after}"
    )


def tables(samples: Sequence[Sample], texts: Sequence[Sample]) -> str:
    """Return all tables, for MedXpertQA-MM's questions and some of MedXpertQA-Text."""
    return f"""\
MedXpertQA-MM's {len(samples):,} questions, all answered right in the same words: percentage that counts as right.
`reference_release` and `reference_fixed` read these as `reference` does. Numbers in brackets are lines of the kit's
`utils/utils.py`.

{choice_table(samples, RIGHT, "every reply, where B is right")}
The same for replies that answer nothing:

{choice_table(samples, NO_ANSWER, "every reply")}
The same for two sets without images: MedXpertQA-Text, ten options, by {len(texts)} of its questions; and PubMedQA,
whose options are always yes, no and maybe, each as often right.

{text_table(texts)}
Made-up questions in the numbers of the published sets, X being the right answer: accuracy in percent, and
total / closed / open where these differ.

{faults_table()}
{permuted_names()}"""


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, ["---"] * len(heads), *rows))


def percent(share: float) -> str:
    """Return a share in percent, with as many digits as tell it from 0 and 100."""
    if math.isnan(share):
        return "no number"
    shown = f"{100 * share:.1f}"
    if shown in ("0.0", "100.0") and share not in (0.0, 1.0):
        return f"{100 * share:.2f}"
    return shown.removesuffix(".0")


# ---- wordings, on MedXpertQA-MM's questions ----

RULES = ("medevalkit_tagged_choice", "robust_kit_choice")
_SIMILAR = "no letter found: the most similar option counts (129)"


@dataclass(frozen=True)
class Wording:
    """How replies are worded: ``{L}`` is the right letter, ``{t}`` its option's text."""

    template: str
    cause: str = ""
    shown: str = ""  # in Markdown, where it is not the template with B

    def reply(self, sample: Sample) -> str:
        """Return the right answer in this wording."""
        assert sample.target is not None
        return self.template.format(
            L=sample.document["answer"], t=sample.options[sample.target]
        )


RIGHT = (
    Wording("The answer is: {L}", "text after the colon is not stripped (109)"),
    Wording("The correct option is {L}.", _SIMILAR),
    Wording(r"\boxed{{\text{{{L}}}}}", "what is in the box is not cleaned (138)"),
    Wording("Option {L}", _SIMILAR),
    Wording(
        "<think>It is a fracture.</think>\n{L}",
        "thinking is part of the answer",
        "`<think>…</think>⏎B`",
    ),
    Wording('{{"answer": "{L}"}}', _SIMILAR),
    Wording("{L}, because the image shows it", _SIMILAR),
    Wording("({L})", "brackets are not read (129)"),
    Wording("**{L}**", "bold is not read (129)"),
    Wording("正确答案是{L}。", "of Chinese only `答案:` is known (148)"),
    Wording("The answer is ({L}).", "brackets are not read (129)"),
    Wording("{t}", "some options are equal, or letters themselves", "the option's text"),
    Wording("{L}"),
    Wording("{L}. {t}", "some options are letters, as in `B. E`", "`B. text`"),
    Wording("The answer is {L}."),
    Wording(r"\boxed{{{L}}}"),
)
_VERDICTS = ["yes", "no", "maybe"]
TEXT_WORDINGS = (
    Wording("{L}"),
    Wording("{L}. {t}", shown="`B. text`"),
    Wording("{t}", shown="the option's text"),
    Wording("({L})"),
    Wording("**{L}**"),
    Wording("Option {L}"),
    Wording("The answer is {L}."),
    Wording("The answer is: {L}"),
    Wording("{L}, because the study shows it"),
    Wording("<think>It is a fracture.</think>\n{L}", shown="`<think>…</think>⏎B`"),
)
NO_ANSWER = (
    Wording("", "an empty reply is A (129)", "nothing"),
    Wording("I'm sorry, but I can't help with that.", _SIMILAR),
    Wording("<think>One would think of a fracture, but", _SIMILAR, "`<think>…`, cut off"),
    Wording("A, B, C, D, E", _SIMILAR),
)


def medxpertqa(data: Path, file: Path = QUESTIONS) -> list[Sample]:
    """Return the questions of a file of MedXpertQA, by default MM's."""
    rows = map(json.loads, (data / file).read_text(encoding="utf-8").splitlines())
    return [
        Sample(
            {"options": [one["content"] for one in row["options"]], "answer": row["label"][0]}
        )
        for row in rows
    ]


def share_right(samples: Sequence[Sample], wording: Wording, rule: str) -> float:
    """Return the share of questions that a rule counts as right when all are answered in one wording."""
    extract = extractor_of(rule).extract
    right = [
        extract(wording.reply(sample), sample).value == sample.document["answer"]
        for sample in samples
    ]
    return sum(right) / len(right)


def choice_table(samples: Sequence[Sample], wordings: Sequence[Wording], head: str) -> str:
    """Return what two rules make of each wording, the worst first."""
    found = [[share_right(samples, wording, rule) for rule in RULES] for wording in wordings]
    rows = [
        [
            wording.shown or f"`{wording.template.format(L='B')}`",
            *map(percent, shares),
            wording.cause,
        ]
        for wording, shares in sorted(
            zip(wordings, found, strict=True), key=lambda row: row[1][0]
        )
    ]
    return markdown([head, "`reference`", "`robust`", "fault"], rows)


def text_table(texts: Sequence[Sample]) -> str:
    """Return what two rules make of each wording in two sets without images, the worst first."""
    lines = [f"{name}.{text}" for name, text in zip("ABC", _VERDICTS, strict=True)]
    abstracts = [
        Sample(
            {
                "options": _VERDICTS,
                "option_lines": lines,
                "answer": name,
                "gold": name,
                "question": "Does it help?",
            }
        )
        for name in "ABC"
    ]
    rows = []
    for wording in (*TEXT_WORDINGS, *NO_ANSWER[:2]):
        shares = [
            share_right(samples, wording, rule)
            for samples in (texts, abstracts)
            for rule in RULES
        ]
        shown = wording.shown or f"`{wording.template.format(L='B')}`"
        rows.append((shares[0], [shown, *map(percent, shares)]))
    heads = [
        f"{name}, `{row}`"
        for name in ("MedXpertQA-Text", "PubMedQA")
        for row in ("reference", "robust")
    ]
    return markdown(
        ["every reply, where B is right", *heads],
        [row for _, row in sorted(rows, key=lambda row: row[0])],
    )


# ---- whole sets, of made-up questions ----


@dataclass(frozen=True)
class Questions:
    """A set in the numbers of the published one: documents, and how many questions are like each."""

    name: str
    family: TaskFamily
    rules: Mapping[str, str]  # by row
    documents: Sequence[tuple[Mapping[str, Any], int]]
    judged: TaskFamily | None = None


def short_answers(
    name: str, closed: int, opened: int, reference: str, fixed: str, *, released: bool = True
) -> Questions:
    """Return a set of closed and open questions, with right answers of one word and of two."""
    halves = {
        "Yes": closed - closed // 2,
        "No": closed // 2,
        "CT": opened - opened // 2,
        "Right Lung": opened // 2,
    }
    says_type = (
        {} if released else {"answer_type": "CLOSED"},
        {} if released else {"answer_type": "OPEN"},
    )
    documents = [
        (
            {
                "question": "What is it?",
                "answer": answer,
                **says_type[answer not in ("Yes", "No")],
            },
            count,
        )
        for answer, count in halves.items()
    ]
    rules = {"reference": reference, "reference_fixed": fixed, "robust": "robust_kit_vqa"}
    rules |= {"reference_release": "medevalkit_vqa_release"} if released else {}
    return Questions(
        name, kit_questions.FAMILY, rules, documents, kit_questions.JUDGED_QUESTIONS
    )


VQA_RAD = short_answers("VQA-RAD", 251, 200, "medevalkit_vqa", "medevalkit_vqa_fixed")
PATH_VQA = short_answers("PathVQA", 3362, 3357, "medevalkit_path_vqa", "medevalkit_vqa_fixed")
SLAKE = short_answers(
    "SLAKE", 836, 1258, "medevalkit_slake", "medevalkit_slake_fixed", released=False
)
_CHOICE = {"options": ["liver", "spleen", "kidney", "heart"], "answer": "B", "gold": "B"}
MMMU = Questions(
    "MMMU-Med",
    choice.KIT_CHOICE,
    {
        "reference": "medevalkit_mmmu",
        "reference_fixed": "medevalkit_mmmu_fixed",
        "robust": "robust_mmmu",
    },
    [
        ({**_CHOICE, "question_type": "multiple-choice"}, 145),
        ({"options": [], "answer": None, "gold": "2", "question_type": "open"}, 5),
    ],
)
_TAGGED = {
    "reference": "medevalkit_tagged_choice",
    "reference_fixed": "medevalkit_tagged_choice_fixed",
    "robust": "robust_kit_choice",
}
MMLU = Questions(
    "MMLU-Med",
    choice.KIT_CHOICE,
    _TAGGED,
    [({**_CHOICE, "option_lines": _CHOICE["options"], "flags": ["no_context"]}, 1871)],
)
OMNIMEDVQA = Questions(
    "OmniMedVQA",
    choice.KIT_CHOICE,
    _TAGGED,
    [({**_CHOICE, "flags": []}, 88_125), ({**_CHOICE, "flags": ["no_modality_type"]}, 871)],
)


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and where: a set, how its right answers ``{a}`` are worded, and what a judge says."""

    what: str
    questions: Questions
    reply: str
    shown: str = ""  # in Markdown, where it is not the reply with X
    verdict: str | None = None  # of a judge, on everything; None: no judge
    odd: str | None = None  # what one question is answered instead
    open_reply: str | None = None  # where open questions are answered in other words


_RIGHT_VERDICT = "<think>They mean the same.</think>\n<judge>0</judge>"
FAULTS = (
    Fault("one of its 42 files lacks a column (`OmniMedVQA.py:127`)", OMNIMEDVQA, "{a}"),
    Fault("its prompt names an unknown variable: nothing is asked (`MMLU.py:54`)", MMLU, "{a}"),
    Fault("one empty open reply, or one of 1,000 words, ends it all (187)", PATH_VQA, "{a}", "one is `.`", odd="."),
    Fault("closed answers are compared whole (163), open ones too (186)", SLAKE, "The answer is {a}."),
    Fault("any substring `yes` or `no`: kNOw (172)", VQA_RAD, "I do not know."),
    Fault("text after `Answer:` is not stripped (186)", VQA_RAD, "Answer: {a}"),
    Fault(
        "any substring `yes` or `no`: diagNOsis (172)",
        VQA_RAD, "{a}. The diagnosis is clear.", "`X. The diagnosis is clear.`", open_reply="{a}",
    ),
    Fault("open accuracy is divided twice (`VQA_RAD.py:144`)", VQA_RAD, "{a}"),
    Fault("the same; the release compares whole", VQA_RAD, "The answer is {a}.", verdict=_RIGHT_VERDICT),
    Fault("closed answers are voided (`PATH_VQA.py:122`)", PATH_VQA, "{a}", verdict=_RIGHT_VERDICT),
    Fault("closed answers count twice (`SLAKE.py:152`)", SLAKE, "{a}", verdict=_RIGHT_VERDICT),
    Fault('a verdict without its tag is "wrong" (`VQA_RAD.py:130`)', VQA_RAD, "{a}", verdict="0, it means the same."),
    Fault("open answers are not parsed (`MMMU/eval_val.py:51`)", MMMU, "{a}"),
    Fault("no letter found: one is drawn (`MMMU/eval_utils.py:46`)", MMMU, "**{a}**"),
)  # fmt: skip
PARTS = ("accuracy", "acc_closed", "acc_open")
_BETWEEN = "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}"


class Scripted:
    """A judge that always says the same."""

    label = "scripted"
    settings = SimpleNamespace(label=label, model="scripted", temperature=0.0)

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict

    def ask(
        self, system: str, user: str, parse: Callable[[str], Any], *, prompt_version: int = 1
    ) -> JudgeVerdict[Any]:
        """Return what it says, as the family reads it."""
        return JudgeVerdict(parse(self.verdict), None, False, self.verdict)


@contextmanager
def scoring(fault: Fault) -> Iterator[TaskFamily]:
    """Yield the family that scores, with the scripted judge if there is one."""
    known = kit_questions.judge_for
    if fault.verdict is None or fault.questions.judged is None:
        yield fault.questions.family
        return
    kit_questions.judge_for = lambda *_: Scripted(str(fault.verdict))  # type: ignore[assignment,return-value]
    try:
        yield fault.questions.judged
    finally:
        kit_questions.judge_for = known


def measured(fault: Fault, rule: str) -> dict[str, float]:
    """Return the metrics of a set of replies under a rule by name; NaN for one without a value."""
    scores = []
    with scoring(fault) as family:
        for place, (document, count) in enumerate(fault.questions.documents):
            answer = document["answer"] or document["gold"]
            closed = answer in ("Yes", "No") or fault.open_reply is None
            reply = Reply.of_text(
                (fault.reply if closed else str(fault.open_reply)).format(a=answer)
            )
            score = family.score(Sample({"doc_id": str(place), **document}), reply, Rule(rule))
            scores += [
                {**score, "sample": f"{place}_{one}", "cluster_id": f"{place}_{one}"}
                for one in range(count)
            ]
        if fault.odd is not None:
            scores[-1] = family.score(
                Sample({"doc_id": "odd", **document}), Reply(text=fault.odd), Rule(rule)
            )
        return {
            name: estimate.value for name, estimate in evaluate(family.metrics, scores).items()
        }


def faults_table() -> str:
    """Return what each fault makes of right answers, under the rows of a task."""
    rows = []
    for fault in FAULTS:
        cells = {
            row: _accuracies(measured(fault, rule))
            for row, rule in fault.questions.rules.items()
        }
        if fault.verdict is not None and "reference_release" in cells:
            cells["reference"] += f"<br>release: {cells['reference_release']}"
        asked = fault.questions.name + (", judged" if fault.verdict is not None else "")
        shown = fault.shown or f"`{fault.reply.format(a='X')}`"
        rows.append(
            [
                fault.what,
                asked,
                shown,
                *(cells[row] for row in ("reference", "reference_fixed", "robust")),
            ]
        )
    return markdown(
        ["fault", "set", "every reply", "`reference`", "`reference_fixed`", "`robust`"], rows
    )


def _accuracies(values: Mapping[str, float]) -> str:
    shown = [percent(values[name]) for name in PARTS if name in values]
    return shown[0] if len(set(shown)) == 1 else _BETWEEN.join(shown)


def permuted_names() -> str:
    """Return in a sentence what stands under the names of three measures."""
    fault = Fault("", VQA_RAD, "{a}", open_reply="the {a}")
    found = [measured(fault, VQA_RAD.rules[row]) for row in ("reference_fixed", "reference")]
    is_so, printed = (
        ", ".join(f"`{name}` {percent(one[name])}" for name in ("precision", "recall", "f1"))
        for one in found
    )
    return (
        f"Open answers worded `the X` have {is_so};\n`reference` prints {printed}: the three values are permuted "
        f"(192, 226).\n"
    )


def main() -> None:
    """Write the tables into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8"), data), encoding="utf-8")


if __name__ == "__main__":
    main()
