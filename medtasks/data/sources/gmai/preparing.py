"""Preparing GMAI-MMBench from its TSV files; one that was read before an interruption is not read again."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import GMAI, DatasetInfo
from medtasks.data.images.image_store import ImageFacts, ImageStore, StoredImage
from medtasks.data.prepare.downloads import hub_download
from medtasks.data.prepare.preparation import Options, Recipe, Row
from medtasks.data.prepare.source_files import not_found, required_file
from medtasks.data.schema import GROUPED_CHOICE, MULTI_ANSWER
from medtasks.data.sources.gmai.questions import Question, TsvFile, read_questions, rows_of
from medtasks.data.store import SCRATCH
from medtasks.errors import SourceError
from medtasks.home import written_whole

VALIDATION, TEST, MULTI_ANSWER_SET = GMAI
_VALIDATION_NAMES = ("GMAI-MMBench_VAL.tsv", "GMAI_mm_bench_VAL.tsv")


def _recipe(info: DatasetInfo, options: Options) -> Recipe:
    digests: dict[str, str] = {}
    return Recipe(
        columns=MULTI_ANSWER if info is MULTI_ANSWER_SET else GROUPED_CHOICE,
        test=functools.partial(_rows, info, options, digests),
        layout=", ".join(info.md5) or "the benchmark's TSV columns, with answers such as 'A,C', in one .tsv file",
        download=hub_download(info, list(info.md5)) if info.md5 else None,
        revision=lambda _: info.revision if not _changed(info, digests) else "local",
        counted=not options.allow_changed,
    )


def _rows(
    info: DatasetInfo, options: Options, digests: dict[str, str], source: Path, images: ImageStore
) -> Iterator[Row]:
    questions: list[Question] = []
    for path in tsv_files(info, source):
        part, digests[path.name] = _part(info, path, images)
        changed = _changed(info, {path.name: digests[path.name]})
        if changed and not options.allow_changed:
            faults = (f": {row.place}: {row.cause}" for row in part if row.document is None or row.cause)
            raise SourceError(
                f"{path} is not the published file (MD5 {digests[path.name]}, published {changed[0]})"
                f"{next(faults, '')}; download it again, or accept this one with --allow-changed"
            )
        questions += part
    yield from rows_of(questions)


def tsv_files(info: DatasetInfo, source: Path) -> list[Path]:
    """Find the files of a part in ``source``, a folder that holds them or the single file itself."""
    if source.is_file():
        return [source]
    if info is MULTI_ANSWER_SET:
        found = sorted(source.glob("*.tsv"))
        if len(found) != 1:
            raise not_found(source, "single .tsv file", "name the file itself with --source")
        return found
    if info is VALIDATION:
        return [required_file(source, _VALIDATION_NAMES).path]
    missing = [name for name in info.md5 if not (source / name).is_file()]
    if missing:
        raise not_found(source, missing[0])
    return [source / name for name in info.md5]


def _changed(info: DatasetInfo, digests: Mapping[str, str]) -> list[str]:
    """Return the published digest of each file that has another one."""
    only = next(iter(info.md5.values())) if len(info.md5) == 1 else None
    wanted = {name: only or info.md5.get(name, digest) for name, digest in digests.items()}
    return [wanted[name] for name, digest in digests.items() if digest != wanted[name]]


def _part(info: DatasetInfo, path: Path, images: ImageStore) -> tuple[list[Question], str]:
    """Read one file, or take what an earlier attempt noted of it; with its MD5."""
    state = path.stat()
    mark = f"{path.name} {state.st_size} {state.st_mtime_ns}"
    note = images.folder / SCRATCH / "parts" / f"{path.name}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # no note, or one that is damaged
        noted = json.loads(note.read_text(encoding="utf-8"))
        if noted["mark"] == mark:
            return [_question(entry, images) for entry in noted["questions"]], str(noted["md5"])
    file = TsvFile(path)
    questions = read_questions(file, images, keyed=info is not TEST, several=info is MULTI_ANSWER_SET)
    facts = images.facts
    kept = [
        dataclasses.asdict(question)
        | ({"facts": dataclasses.asdict(facts[question.image.file])} if isinstance(question.image, StoredImage) else {})
        for question in questions
    ]
    with written_whole(note) as partial:
        partial.write_text(json.dumps({"mark": mark, "md5": file.md5, "questions": kept}), encoding="utf-8")
    return questions, file.md5


def _question(entry: dict[str, Any], images: ImageStore) -> Question:
    image = entry["image"]
    if isinstance(image, dict):
        facts = ImageFacts(entry["facts"]["sha256"], tuple(entry["facts"]["conversions"]))
        image = images.recall(StoredImage(**image), facts)
    return Question(entry["place"], entry["document"], image, entry["cause"])


RECIPES: Mapping[str, Callable[[Options], Recipe]] = {
    info.name.removeprefix("gmai_"): functools.partial(_recipe, info) for info in GMAI
}
