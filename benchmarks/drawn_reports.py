"""Drawn radiology reports, of which none is a patient's: pairs of a reference and a hypothesis."""

import random

PAIRS = 3000
FINDINGS = (
    *(
        "effusion",
        "opacities",
        "consolidation",
        "atelectasis",
        "edema",
        "pneumothorax",
        "nodules",
        "masses",
    ),
    *(
        "fractures",
        "thickening",
        "congestion",
        "cardiomegaly",
        "scarring",
        "calcifications",
        "infiltrates",
    ),
)
WORDS = (
    *(
        "small",
        "large",
        "mild",
        "moderate",
        "severe",
        "left",
        "right",
        "bilateral",
        "basilar",
        "apical",
        "pleural",
    ),
    *(
        "lower",
        "upper",
        "middle",
        "lobe",
        "lung",
        "stable",
        "unchanged",
        "increased",
        "improved",
        "worsening",
        "again",
    ),
    *(
        "the",
        "the",
        "of",
        "in",
        "with",
        "and",
        "is",
        "are",
        "seen",
        "noted",
        "there",
        "patient's",
        "chronic",
        "acute",
    ),
)


def sentence(draw: random.Random) -> str:
    """Draw a sentence of about a dozen words; hardly any is drawn twice."""
    words = [draw.choice(WORDS) for _ in range(draw.randint(6, 12))]
    words[draw.randrange(len(words))] += ","
    size = draw.choice(
        ["", "", f" measuring {draw.randint(1, 99)}.{draw.randint(0, 9)} cm", " (series 2)"]
    )
    return f"{' '.join(words).capitalize()} {draw.choice(FINDINGS)}{size}."


def report_pairs() -> tuple[list[str], list[str]]:
    """Draw references of five sentences or so, and hypotheses that share some of them and parts of others."""
    draw = random.Random(7)
    references, hypotheses = [], []
    for _ in range(PAIRS):
        sentences = [sentence(draw) for _ in range(draw.randint(4, 7))]
        references.append(" ".join(sentences))
        kept = [one for one in sentences if draw.random() < 0.4]
        altered = [
            one.lower().replace("opacities", "opacity")
            for one in sentences
            if draw.random() < 0.3
        ]
        hypotheses.append(
            " ".join([*kept, *altered, *(sentence(draw) for _ in range(draw.randint(1, 3)))])
        )
    return references, hypotheses
