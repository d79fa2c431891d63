"""Downloading files of PhysioNet's projects with the login of a person who has signed their agreements.

The login goes to PhysioNet alone, over https. Every file is compared with the SHA-256 that its project publishes in
``SHA256SUMS.txt``. PhysioNet takes logins of Wget and its own library only, and answers 401 to a wrong login, 403 to
that of a person who has not signed (https://github.com/MIT-LCP/physionet-build, issue 1434).
"""

import netrc
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from requests.auth import HTTPBasicAuth
from tqdm import tqdm

from medtasks.data.prepare.downloads import Published, SafeSession, download
from medtasks.data.privacy import PHYSIONET_VARIABLES
from medtasks.errors import SourceError, join_names
from medtasks.version import __version__

_HOST = "https://physionet.org"
_CHECKSUMS = "SHA256SUMS.txt"
_REFUSALS = {
    401: f"PhysioNet does not know this login; check {join_names(PHYSIONET_VARIABLES)}, or the entry in ~/.netrc",
    403: "this login has not signed the agreement of the project; sign it at {0}/content/{1}/",
}
_OTHERWISE = (
    "run the same command again, what has arrived is kept; or add '--source FOLDER' with a copy"
)


def login_of(user: str, password: str) -> HTTPBasicAuth:
    """Return a login for requests, in the encoding that PhysioNet asks for."""
    return HTTPBasicAuth(user.encode(), password.encode())


def stored_login() -> HTTPBasicAuth | None:
    """Return the login in the environment or, for PhysioNet by name, in ``~/.netrc``, or None without one."""
    user, password = map(os.environ.get, PHYSIONET_VARIABLES)
    if user and password:
        return login_of(user, password)
    try:
        user, _, password = netrc.netrc().hosts["physionet.org"]
    except (OSError, netrc.NetrcParseError, KeyError):  # also of a file that others may read
        return None
    return login_of(user, password) if password else None


class PhysioNet:
    """Files of PhysioNet, as one login may read them."""

    def __init__(self, login: HTTPBasicAuth) -> None:
        self._session = SafeSession()
        self._session.auth = login
        self._session.headers["User-Agent"] = f"Wget/1.21 (medtasks {__version__})"

    def fetch(self, project: str, names: Iterable[str], folder: Path) -> None:
        """Download files of a project into a folder, under their own names.

        Files that have arrived are not asked for again if their checksum is right. A file that the project does not
        list stays missing, which whoever reads the folder reports.

        Args:
            project: Name and version, such as ``"mednli/1.0.0"``.
            names: Files by their path in the project.
            folder: Folder for the files.

        Raises:
            SourceError: PhysioNet cannot be reached, refuses the login, or sent other files than it published. The
                message names no file below a folder: such names hold the numbers of patients.
        """
        requested = set(names)
        if not requested:
            return
        target = folder / f"{project.replace('/', '-')}-{_CHECKSUMS}"
        checksums = self._download(project, _CHECKSUMS, target)
        digests = {}
        with checksums.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                digest, _, name = line.strip().partition(" ")
                name = name.lstrip(" *")
                if name in requested:
                    digests[name] = digest
        if not digests:
            checksums.unlink()
            raise SourceError(
                f"{_CHECKSUMS} of {project} at {_HOST} lists none of the files that are needed"
            )
        for name, digest in tqdm(
            digests.items(), f"Files of {project}", leave=False, disable=None
        ):
            self._download(project, name, folder / name, digest)

    def _download(
        self, project: str, name: str, target: Path, sha256: str | None = None
    ) -> Path:
        """Download a file of a project.

        Args:
            project: Name and version.
            name: Path in the project.
            target: Location of the downloaded file.
            sha256: Published digest, None for a file whose digest is unknown.

        Raises:
            SourceError: PhysioNet cannot be reached or refuses, or the file differs. The reason says what to do.
        """
        published = Published(f"{_HOST}/files/{project}/{quote(name)}", sha256=sha256)
        try:
            return download(published, target, self._session)
        except SourceError as error:
            fault = (
                type(error.__cause__).__name__ if error.__cause__ else "its checksum differs"
            )
            status = getattr(getattr(error.__cause__, "response", None), "status_code", 0)
            reason = _REFUSALS.get(status, f"{fault}; {_OTHERWISE}").format(_HOST, project)
            file_name = "a file" if "/" in name else name
            raise SourceError(
                f"cannot download {file_name} of {project} from {_HOST}: {reason}"
            ) from None
