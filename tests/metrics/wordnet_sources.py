"""A WordNet of a dozen invented senses in the published file formats, and synonyms as NLTK asks for them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SENSES: Mapping[str, Sequence[tuple[str, ...]]] = {
    "noun": [
        ("lung",),
        ("nodule", "tubercle"),
        ("Roentgen_ray", "x-ray", "Roentgenogram"),
        ("leaf", "leafage"),
        ("opacity",),
    ],
    "verb": [("go", "travel"), ("enlarge", "blow_up", "magnify"), ("leave", "exit")],
    "adj": [("large", "big"), ("able(p)", "capable(a)"), ("large", "declamatory")],
    "adv": [("largely", "mostly")],
}
EXCEPTIONS = {"noun": "leaves leaf\n", "verb": "went go\ngone go\n", "adj": "better good well\n", "adv": ""}
LICENCE = "".join(f"  {line} {text}  \n" for line, text in enumerate(("Invented.", "WordNet 3.0 Copyright nobody."), 1))
LETTERS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


def wordnet_files() -> Mapping[str, bytes]:
    """Return the files of the database by name, those that only NLTK's reader asks for included."""
    files = {"lexnames": b"00\tadj.all\t3\n", "index.sense": b"", "cntlist.rev": b""}
    for part, senses in SENSES.items():
        data = LICENCE
        places: dict[str, list[int]] = {}
        for words in senses:
            for word in words:
                places.setdefault(word.partition("(")[0].lower(), []).append(len(data))
            listed = " ".join(f"{word} 0" for word in words)
            frames = " 01 + 02 00" if part == "verb" else ""
            data += f"{len(data):08d} 00 {LETTERS[part]} {len(words):02x} {listed} 000{frames} | invented  \n"
        index = LICENCE
        for word, found in sorted(places.items()):
            offsets = " ".join(f"{place:08d}" for place in found)
            index += f"{word} {LETTERS[part]} {len(found)} 0 {len(found)} 0 {offsets}  \n"
        files |= {
            f"data.{part}": data.encode(),
            f"index.{part}": index.encode(),
            f"{part}.exc": EXCEPTIONS[part].encode(),
        }
    return files


def write_wordnet(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files of a database into a new folder."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


class ListedSynonyms:
    """A list of synonyms by word with the part of a reader that METEOR asks."""

    def __init__(self, synonyms: Mapping[str, Iterable[str]]) -> None:
        self._synonyms = synonyms

    def synsets(self, word: str) -> list[Any]:
        names = self._synonyms.get(word, ())
        return [SimpleNamespace(lemmas=lambda: [SimpleNamespace(name=lambda name=name: name) for name in names])]


def synonyms(wordnet: Any, word: str) -> set[str]:
    """Return the single words that share a sense with a word in lower case, as METEOR takes them."""
    names = (lemma.name() for sense in wordnet.synsets(word) for lemma in sense.lemmas())
    return {name for name in names if "_" not in name}
