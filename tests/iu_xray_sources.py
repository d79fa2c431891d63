"""IU X-Ray in miniature, in both layouts in which it is spread."""

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from .multimedeval_sources import picture, put

# Number of the study: indication, findings, images.
STUDIES = {
    10: (
        "Chest pain",
        "The heart is XXXX.\n\nNo & nothing.",
        ["CXR10_IM-0002-1001", "CXR10_IM-0002-2001"],
    ),
    2: ("", "Lungs are clear.", ["CXR2_IM-0652-1001"]),
    3: ("Cough", None, ["CXR3_IM-1384-1001"]),
    4: ("Cough", "Seen by nobody.", []),
}


def report(number: int) -> str:
    indication, findings, images = STUDIES[number]
    texts = {
        "COMPARISON": "None.",
        "INDICATION": indication,
        "FINDINGS": findings,
        "IMPRESSION": "Normal chest.",
    }
    sections = "".join(
        f'<AbstractText Label="{label}">{(text or "").replace("&", "&amp;")}</AbstractText>'
        for label, text in texts.items()
    )
    shown = "".join(
        f'<parentImage id="{image}"><figureId>F1</figureId></parentImage>' for image in images
    )
    return (
        f'<?xml version="1.0" encoding="utf-8"?><eCitation><uId id="CXR{number}"/><MedlineCitation><Article><Abstract>'
        f"{sections}</Abstract></Article></MedlineCitation>{shown}</eCitation>"
    )


def put_open_i(folder: Path) -> Path:
    for number, (_, _, images) in STUDIES.items():
        put(folder / "ecgen-radiology" / f"{number}.xml", report(number))
        for position, image in enumerate(images):
            put(folder / "NLMCXR_png" / f"{image}.png", picture(number + 50 * position, "PNG"))
    return folder


def put_r2gen(folder: Path) -> Path:
    rows = []
    for number in (7, 5):
        study = f"CXR{number}_IM-{number:04d}"
        names = [f"{study}/{position}.png" for position in (0, 1)]
        rows.append(
            {"id": study, "report": f"Report {number}.", "image_path": names, "split": "test"}
        )
        for position, name in enumerate(names):
            put(folder / "images" / name, picture(number + 50 * position, "PNG"))
    put(folder / "annotation.json", json.dumps({"train": [], "val": [], "test": rows}))
    return folder


def put_tgz(path: Path, members: Mapping[str, bytes]) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return put(path, buffer.getvalue())


def pack(folder: Path) -> Path:
    """Replace Open-i's unpacked files by its archives."""
    for part, archive in (
        ("ecgen-radiology", "NLMCXR_reports.tgz"),
        ("NLMCXR_png", "NLMCXR_png.tgz"),
    ):
        files = sorted((folder / part).iterdir())
        # Images stand at the top of their archive, and what a Mac adds has the names of the real files.
        prefix = "" if archive == "NLMCXR_png.tgz" else f"{part}/"
        members = {f"{prefix}{file.name}": file.read_bytes() for file in files}
        put_tgz(folder / archive, {f"{prefix}._{files[0].name}": b"no image", **members})
        for file in files:
            file.unlink()
        (folder / part).rmdir()
    return folder
