"""Pairs with captions and similarities: those of a study, or the published ones of MediConfusion."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from medtasks.curate.drafts import read_drafts
from medtasks.curate.study import ImagePair, Study, StudyKind, read_images, read_pairs, read_study
from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.home import dataset_folder
from medtasks.data.manifest import Manifest
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import SourceError

_FILES = ("dataset.json", "data/dataset.json")


@dataclass(frozen=True)
class KnownPair:
    """One pair with what an LLM is told of it."""

    pair: ImagePair
    captions: tuple[str, str]
    question: str = ""  # none where nobody drafted it
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownPairs:
    """Pairs of one benchmark."""

    study: Study  # of published pairs, what their study would be
    pairs: Mapping[str, KnownPair]  # by id, in their order


def pairs_of_study(folder: Path) -> KnownPairs:
    """Return the pairs of a study, drafted or not; errors are those of :mod:`medtasks.curate.study`."""
    study = read_study(folder, StudyKind.PAIRS)
    images, drafts = read_images(folder), read_drafts(folder)
    found = {}
    for pair in read_pairs(folder):
        first, second = (images[name].text if name in images else "" for name in pair.images)
        draft = drafts.get(pair.pair_id)
        asked = ("", ()) if draft is None else (draft.question, draft.options)
        found[pair.pair_id] = KnownPair(pair, (first, second), *asked)
    return KnownPairs(study, found)


class _Published(ImagePair):
    """What is read of a record of ``dataset.json``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sim_med: float = Field(alias="BiomedCLIP_sim")
    sim_gen: float = Field(alias="DINO_sim")
    cap_1: str
    cap_2: str
    question: str
    option_A: str
    option_B: str


def published_pairs(source: Path | None) -> KnownPairs:
    """Return the pairs of MediConfusion's published ``dataset.json``, in ``source`` or where it was prepared from.

    SourceError: the file is not there, or malformed.
    """
    name = MEDICONFUSION.name
    folder = str(source or _prepared_from(name))
    path = next((Path(folder, file) for file in _FILES if Path(folder, file).is_file()), None)
    if path is None:
        raise SourceError(
            f"{folder} is no folder with dataset.json, which holds captions and similarities of '{name}'; give its "
            f"folder with --source"
        )
    study = Study(name=name, kind=StudyKind.PAIRS, access=MEDICONFUSION.access, source=str(path))
    try:
        records = TypeAdapter(dict[str, dict[str, Any]]).validate_python(parse_json(path.read_text(encoding="utf-8")))
        return KnownPairs(study, {pair_id: _published(pair_id, record) for pair_id, record in records.items()})
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)[0]
        raise SourceError(
            f"{path} is malformed ('{'.'.join(map(str, found['loc']))}' is {found['type']}); get it again from "
            f"{MEDICONFUSION.source}"
        ) from None
    except ValueError:
        raise SourceError(f"{path} is not valid JSON; get it again from {MEDICONFUSION.source}") from None


def _published(pair_id: str, record: Mapping[str, Any]) -> KnownPair:
    images = tuple(str(record.get(f"im_{position}_local", "")) for position in (1, 2))
    one = _Published.model_validate({**record, "pair_id": pair_id, "images": images})
    pair = ImagePair(pair_id=pair_id, images=one.images, sim_med=one.sim_med, sim_gen=one.sim_gen)
    return KnownPair(pair, (one.cap_1, one.cap_2), one.question, (one.option_A, one.option_B))


def _prepared_from(name: str) -> str:
    try:
        return Manifest.read(dataset_folder(name)).source
    except FileNotFoundError:
        raise SourceError(
            f"'{name}' is not prepared, so that nobody knows where its dataset.json is; give its folder with --source"
        ) from None
