"""RaTEScore on one core: texts per second of our batches, against one sentence and one report at a time.

The published code (release 0.6.0) passes each sentence alone by default, encodes the entities of each report anew, and
splits sentences with spaCy and PyRuSH. This baseline passes and encodes as it does, but splits sentences by our own
faster rules, so that the true factor is larger. The baseline loads its networks before the clock starts, we after.

    python benchmarks/rate_score.py FOLDER RULES [REPORTS]    # FOLDER holds ner/, encoder/ and pairs.jsonl
"""

import json
import sys
import time
from itertools import cycle, islice
from pathlib import Path

import torch
from transformers import (
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.rate_score import Entity, entity_scores, rate_score_reference
from medtasks.metrics.neural.rate_sentences import entity_spans, split_sentences

TARGET = 1.3


class OneByOne:
    """The published order of work."""

    def __init__(self, folder: Path, rules: Path) -> None:
        self.rules = rules
        self.ner_tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "ner" / "tokenizer.json"), pad_token="[PAD]"
        )
        self.ner = AutoModelForTokenClassification.from_pretrained(folder / "ner").eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder / "encoder")
        self.encoder = AutoModel.from_pretrained(folder / "encoder").eval()

    def entities(self, report: str) -> list[Entity]:
        """Return the entities of one report, one pass per sentence."""
        entities = []
        for sentence in split_sentences(report, self.rules):
            inputs = self.ner_tokenizer(
                sentence, truncation=True, max_length=512, return_tensors="pt"
            )
            inputs.pop("token_type_ids", None)
            labels = [
                self.ner.config.id2label[int(label)]
                for label in self.ner(**inputs).logits[0].argmax(-1)
            ]
            tokens = self.ner_tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
            for start, end, kind in entity_spans(tokens, labels):
                entities.append(
                    Entity(
                        self.ner_tokenizer.convert_tokens_to_string(tokens[start : end + 1]),
                        kind,
                    )
                )
        return entities

    def score(self, reference: str, hypothesis: str) -> float:
        """Score one pair, one pass of the encoder per report."""
        sides = [self.entities(text) for text in (reference, hypothesis)]
        if not all(sides):
            return 0.5
        vectors = {}
        for side in sides:
            texts = [entity.text for entity in side]
            encoded = self.tokenizer(
                texts, padding=True, truncation=True, max_length=30, return_tensors="pt"
            )
            hidden = torch.nn.functional.normalize(
                self.encoder(**encoded).last_hidden_state[:, 0], dim=-1
            )
            vectors |= dict(zip(texts, hidden.numpy(), strict=True))
        return entity_scores(*sides, vectors, as_published=True)[""]


def main() -> int:
    """Time both ways, print one line each, and return 1 if the target is missed."""
    torch.set_num_threads(1)
    folder, count = Path(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) > 3 else 200
    rows = [
        json.loads(line)
        for line in (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    pairs = [(row["reference"], row["candidate"]) for row in rows if "error" not in row]
    # A number at the end makes every text a new one, so that nothing is saved by repeated reports.
    pairs = [
        (f"{first} {at}", f"{second} {at}")
        for at, (first, second) in enumerate(islice(cycle(pairs), count))
    ]
    rules = Path(sys.argv[2])
    split_sentences("The rules are compiled once.", rules)
    weights = {"rate-ner": folder / "ner", "biolord": folder / "encoder", "rush-rules": rules}
    settings = ModelSettings(named_weights=weights, device="cpu", cache=None, progress=False)
    seconds = {}
    with torch.inference_mode():
        baseline = OneByOne(folder, rules)
        began = time.perf_counter()
        expected = [baseline.score(*pair) for pair in pairs]
        seconds["one by one"] = time.perf_counter() - began
    began = time.perf_counter()
    scores = rate_score_reference(settings, *(list(side) for side in zip(*pairs, strict=True)))
    seconds["batches"] = time.perf_counter() - began
    values = scores.samples["rate_score_reference"]
    close = sum(
        abs(ours - theirs) < 1e-5 for ours, theirs in zip(values, expected, strict=True)
    )
    for name, spent in seconds.items():
        print(f"{name}: {2 * count / spent:.1f} texts per second")
    factor = seconds["one by one"] / seconds["batches"]
    print(
        f"factor {factor:.2f}, target {TARGET}; {close} of {count} scores within 1e-5, the rest are ties of entities"
    )
    return int(factor < TARGET)


if __name__ == "__main__":
    sys.exit(main())
