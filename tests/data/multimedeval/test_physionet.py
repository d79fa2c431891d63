"""Downloads from PhysioNet with a login, played by a server on this machine."""

import base64
import hashlib
import itertools
import re
from urllib.parse import urlsplit

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare import downloads, physionet
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.schema import DEMONSTRATIONS_SPLIT
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

from ...local_server import LocalServer, QuietHandler, serving
from ...multimedeval_sources import json_lines, put
from ...tables import each_row

USER, PASSWORD = "amélie", "pass word: 5"
LOGIN = physionet.login_of(USER, PASSWORD)
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Server(LocalServer):
    """Projects whose agreement the login has signed, files by path, and all requests."""

    def __init__(self):
        super().__init__(_Handler)
        self.files, self.signed, self.requests, self.headers = {}, set(), [], []
        self.redirect, self.cut = {}, set()

    def publish(self, project, folder, *names):
        """Publish the files of a folder, or those of these names, as PhysioNet does."""
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        files = {
            name: data for name, data in files.items() if not names or name.startswith(names)
        }
        sums = "".join(
            f"{hashlib.sha256(data).hexdigest()} {name}\n" for name, data in files.items()
        )
        self.files |= {f"{project}/{name}": data for name, data in files.items()}
        self.files[f"{project}/SHA256SUMS.txt"] = sums.encode()
        self.signed.add(project)


class _Handler(QuietHandler):
    server: Server

    def do_GET(self):
        name = urlsplit(self.path).path.removeprefix("/files/")
        self.server.requests.append(name)
        self.server.headers.append(dict(self.headers))
        project = "/".join(name.split("/")[:2])
        body = self.server.files.get(name)
        if not self.headers.get("User-Agent", "").startswith("Wget/"):
            self.reply(403, b"")
        elif name in self.server.redirect:
            self.reply(302, b"", Location=self.server.redirect[name])
        elif self.headers.get("Authorization") != AUTHORIZATION:
            self.reply(401, b"", WWW_Authenticate='Basic realm="PhysioNet", charset="UTF-8"')
        elif project not in self.server.signed:
            self.reply(403, b"")
        elif body is None:
            self.reply(404, b"")
        else:
            self.send(name, body)

    def send(self, name, body):
        wanted = self.headers.get("Range")
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        rest = body[begin:]
        is_cut = name in self.server.cut
        self.server.cut.discard(name)
        self.reply(
            206 if begin else 200, rest[:-1] if is_cut else rest, Content_Length=str(len(rest))
        )


@pytest.fixture
def server(monkeypatch, home):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(downloads, "_BACKOFF_S", 0.01)
    with serving(Server()) as server:
        monkeypatch.setattr(physionet, "_HOST", server.url)
        yield server


@pytest.fixture
def other():
    """Another server, with a file for everyone."""
    with serving(Server()) as server:
        yield server


@pytest.fixture
def lines(server, tmp_path):
    """MedNLI, published in miniature."""
    texts = {
        split: f'{{"gold_label": "neutral", "pairID": "{split}"}}\n'
        for split in ("test", "train", "dev")
    }
    for split, text in texts.items():
        put(tmp_path / "mednli" / f"mli_{split}_v1.jsonl", text)
    server.publish("mednli/1.0.0", tmp_path / "mednli")
    return server


def fetch(folder, login=LOGIN, names=("mli_test_v1.jsonl",)):
    physionet.PhysioNet(login).fetch("mednli/1.0.0", names, folder)


def test_the_published_address_is_https():
    assert physionet._HOST == "https://physionet.org"


@pytest.mark.parametrize(
    ("name", "project", "tables", "images"),
    [
        ("vindr_mammo", "vindr-mammo/1.0.0", ["finding_annotations.csv"], 5),
        (
            "mimic_cxr_classification",
            "mimic-cxr-jpg/2.0.0",
            ["mimic-cxr-2.0.0-split.csv.gz", "mimic-cxr-2.0.0-chexpert.csv.gz"],
            6,
        ),
    ],
)
def test_only_what_is_evaluated_and_shown_is_downloaded(
    name, project, tables, images, server, source
):
    pytest.importorskip(
        "pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'"
    )
    folder = source(name)
    expected = prepare(f"multimedeval_{name}", Options(folder, allow_incomplete=True))
    shown = {
        dataset: load_documents(expected.name, dataset)
        for dataset in ("test", DEMONSTRATIONS_SPLIT)
    }
    server.publish(project, folder)

    manifest = prepare(expected.name, Options(login=LOGIN, allow_incomplete=True))

    info = CATALOGUE[expected.name]
    assert (manifest.source, manifest.revision) == (info.source, info.revision)
    assert (manifest.fingerprint, manifest.rows, manifest.images) == (
        expected.fingerprint,
        6,
        images,
    )
    assert {dataset: load_documents(manifest.name, dataset) for dataset in shown} == shown

    requests = [request.removeprefix(f"{project}/") for request in server.requests]
    assert {*requests[: len(tables) + 1]} == {"SHA256SUMS.txt", *tables}
    assert (
        len(requests) == len(set(requests)) == 1 + len(tables) + images + 5
    )  # of ten training images five


def test_reports_and_their_images_are_of_two_projects(server, source, tmp_path):
    folder = source("mimic_cxr_report")
    expected = prepare("multimedeval_mimic_cxr_report", Options(folder, allow_incomplete=True))
    server.publish("mimic-cxr-jpg/2.0.0", folder, "files/", "mimic-cxr-2.0.0-")
    server.publish("mimic-cxr/2.0.0", folder, "mimic-cxr-reports.zip")
    manifest = prepare(expected.name, Options(login=LOGIN, allow_incomplete=True))
    assert (manifest.fingerprint, manifest.rows, manifest.images) == (
        expected.fingerprint,
        3,
        6,
    )
    assert sum(request.endswith(".jpg") for request in server.requests) == 6


@pytest.fixture
def downloaded(server, tmp_path, home):
    """Prepare MedNLI by a login; return the options."""
    texts = {"gold_label": "neutral", "sentence1": "a", "sentence2": "b"}
    for split in ("test", "train"):
        lines = json_lines({**texts, "pairID": str(number)} for number in range(6))
        put(tmp_path / "unpacked" / f"mli_{split}_v1.jsonl", lines)
    server.publish("mednli/1.0.0", tmp_path / "unpacked")
    options = Options(login=LOGIN, allow_incomplete=True)
    assert prepare("multimedeval_mednli", options).rows == 6
    return options


def test_what_arrives_is_the_owners_alone(downloaded, home):
    names = {path.name for path in dataset_folder("multimedeval_mednli").iterdir()}
    assert names == {"dataset_dict.json", "demonstrations", "manifest.json", "test"}
    files = [path for path in home.rglob("*") if path.is_file()]
    assert all(
        path.stat().st_mode & 0o077 == 0
        for path in files
        if "multimedeval_mednli" in path.parts
    )


def test_nothing_holds_the_login(downloaded, home, capfd):
    secrets = [PASSWORD.encode(), USER.encode(), AUTHORIZATION.removeprefix("Basic ").encode()]
    printed = "".join(capfd.readouterr()) + repr(downloaded) + repr(LOGIN)
    files = [path for path in home.rglob("*") if path.is_file()]
    written = [*(path.read_bytes() for path in files), printed.encode()]
    assert not [text for text, secret in itertools.product(written, secrets) if secret in text]


def test_a_download_goes_on_where_it_stopped(lines, tmp_path):
    name = "mednli/1.0.0/mli_test_v1.jsonl"
    lines.cut = {name}
    put(tmp_path / "copy" / "mli_test_v1.jsonl.part", lines.files[name][:10])

    fetch(tmp_path / "copy")

    assert (tmp_path / "copy" / "mli_test_v1.jsonl").read_bytes() == lines.files[name]
    ranges = [headers.get("Range") for headers in lines.headers]
    assert ranges[:2] == [None, "bytes=10-"]
    assert len(ranges) == 3


def test_what_is_there_is_not_downloaded_again(lines, tmp_path):
    """It is compared with its checksum."""
    (tmp_path / "copy").mkdir()
    fetch(tmp_path / "copy")
    asked = len(lines.requests)

    fetch(tmp_path / "copy")

    assert len(lines.requests) == asked


def test_what_has_changed_is_downloaded_again(lines, tmp_path):
    put(tmp_path / "copy" / "mli_test_v1.jsonl", b"changed since")

    fetch(tmp_path / "copy")

    published = lines.files["mednli/1.0.0/mli_test_v1.jsonl"]
    assert (tmp_path / "copy" / "mli_test_v1.jsonl").read_bytes() == published


def test_other_bytes_than_published_are_not_kept(lines, tmp_path, refuses):
    lines.files["mednli/1.0.0/mli_test_v1.jsonl"] += b" "
    with refuses(
        "cannot download mli_test_v1.jsonl of mednli/1.0.0",
        "its checksum differs",
        kind=SourceError,
    ):
        fetch(tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == [
        "mednli-1.0.0-SHA256SUMS.txt"
    ]


def test_a_file_without_a_checksum_is_not_downloaded(lines, tmp_path, refuses):
    lines.files["mednli/1.0.0/extra.jsonl"] = b"{}"
    fetch(tmp_path / "copy", names=("extra.jsonl", "mli_dev_v1.jsonl"))
    assert [request.split("/")[-1] for request in lines.requests] == [
        "SHA256SUMS.txt",
        "mli_dev_v1.jsonl",
    ]
    with refuses(
        "SHA256SUMS.txt of mednli/1.0.0",
        "lists none of the files that are needed",
        kind=SourceError,
    ):
        fetch(tmp_path / "copy", names=("extra.jsonl",))
    digest = hashlib.sha256(b"{}").hexdigest()
    lines.files["mednli/1.0.0/SHA256SUMS.txt"] += f"{digest} extra.jsonl\n".encode()
    fetch(tmp_path / "copy", names=("extra.jsonl",))  # a list without them is not kept
    assert (tmp_path / "copy" / "extra.jsonl").read_bytes() == b"{}"


@each_row(
    "login, is_signed, sentence",
    [
        (
            (USER, "wrong"),
            True,
            "PhysioNet does not know this login; check MEDTASKS_PHYSIONET_USER and MEDTASKS_",
        ),
        (
            (USER, PASSWORD),
            False,
            "has not signed the agreement of the project; sign it at {}/content/mednli/1.0.0/",
        ),
    ],
)
def test_a_refused_login_is_sent_once(lines, tmp_path, refuses, login, is_signed, sentence):
    lines.requests.clear()
    lines.signed = {"mednli/1.0.0"} if is_signed else set()
    with refuses(sentence.format(lines.url), kind=SourceError):
        fetch(tmp_path / "copy", physionet.login_of(*login))
    assert lines.requests == ["mednli/1.0.0/SHA256SUMS.txt"]
    assert "wrong" not in sentence


@each_row(
    "target",
    ["{other}/files/mednli/1.0.0/SHA256SUMS.txt", "/login/?next=/files/", "//{host}/x"],
)
def test_a_redirect_is_not_followed_with_a_login(lines, other, tmp_path, refuses, target):
    location = target.format(other=other.url, host=urlsplit(other.url).netloc)
    lines.redirect["mednli/1.0.0/SHA256SUMS.txt"] = location
    with refuses(
        "cannot download SHA256SUMS.txt of mednli/1.0.0", "InsecureRedirect", kind=SourceError
    ):
        fetch(tmp_path / "copy")
    assert other.requests == []


def test_messages_name_no_image(server, source, refuses):
    folder = source("mimic_cxr_classification")
    server.publish("mimic-cxr-jpg/2.0.0", folder)
    for name in [name for name in server.files if name.endswith(".jpg")]:
        server.files[name] += b" "
    with pytest.raises(SourceError) as caught:
        prepare(
            "multimedeval_mimic_cxr_classification", Options(login=LOGIN, allow_incomplete=True)
        )
    assert "cannot download a file of mimic-cxr-jpg/2.0.0" in str(caught.value)
    assert not re.search(r"p10|d\d", str(caught.value))
    assert caught.value.__cause__ is None  # nor does the traceback


NETRC = "machine example.org login x password y\ndefault login anonymous password z\n"


@each_row(
    "variables, text, mode, login",
    [
        (
            {"USER": "u", "PASSWORD": "p"},
            "machine physionet.org login a password b",
            0o600,
            ("u", "p"),
        ),
        ({"USER": "u"}, "machine physionet.org login a password b", 0o600, ("a", "b")),
        ({}, f"{NETRC}machine physionet.org login a password b", 0o600, ("a", "b")),
        ({"USER": "u"}, NETRC, 0o600, None),  # neither half a login nor that of others
        ({}, "machine physionet.org login a password b", 0o644, None),
        ({}, "machine physionet.org login a password", 0o600, None),
        ({}, None, 0, None),
    ],
)
def test_where_a_login_comes_from(tmp_path, monkeypatch, variables, text, mode, login):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("USER", "PASSWORD"):
        monkeypatch.delenv(f"MEDTASKS_PHYSIONET_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"MEDTASKS_PHYSIONET_{name}", value)
    if text is not None:
        (tmp_path / ".netrc").write_text(text)
        (tmp_path / ".netrc").chmod(mode)
    stored = physionet.stored_login()
    assert stored == (None if login is None else physionet.login_of(*login))


def test_without_a_login_the_message_names_the_variables(home, refuses):
    with refuses(
        "needs credentials", "or set MEDTASKS_PHYSIONET_USER and MEDTASKS_PHYSIONET_PASSWORD"
    ):
        prepare("multimedeval_mednli", Options())
    assert not Manifest.model_fields.keys() & {"login"}
