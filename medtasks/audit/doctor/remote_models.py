"""Models on other machines: which of the harness's would be refused credentialed data, and where they would send it."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping

from medtasks.audit.doctor.findings import CREDENTIALS, Finding, State, of_error
from medtasks.audit.doctor.scope import Scope
from medtasks.data import endpoints
from medtasks.errors import ModelRefused
from medtasks.harness.guarded_run import listed
from medtasks.harness.model_places import PLACES, Destination, known_destinations
from medtasks.harness.remote_models import TRUSTED, credentialed, refusal, trusted_origin

_NAME = "remote models"


def remote_models(scope: Scope) -> Iterator[Finding]:
    """Look at where the harness's models would send questions as the environment stands, if some must not leave."""
    private = credentialed(scope.datasets)
    if not private:
        return
    try:
        trusted = trusted_origin(os.environ)
    except ModelRefused as error:
        yield of_error(CREDENTIALS, TRUSTED, State.PROBLEM, error)
        return
    if trusted:
        found = f"a model at {trusted}, which {TRUSTED} names, may see credentialed data ({listed(private)})"
        yield CREDENTIALS.note(TRUSTED, found, f"unset {TRUSTED} if no data use agreement covers it")
    text = f"text of credentialed data ({listed(private)}) is not sent"
    told, untold = _refused(os.environ)
    state = State.WARNING if scope.chosen else State.NOTE
    here, _, mend = refusal(Destination("http://127.0.0.1"), os.environ).partition("; ")
    if here:
        yield Finding(CREDENTIALS, _NAME, state, f"{text} {here}, so that no model on this machine gets it", mend)
    for cause, models in told.items():
        where, _, mend = cause.partition("; ")
        yield Finding(CREDENTIALS, _NAME, state, f"{text} {where}, by the models {listed(models)}", mend)
    if untold:
        homes = "; ".join(f"{listed(models)} to {where}" for where, models in untold.items())
        found = f"{text} to other machines, which is what these models do if no address is given: {homes}"
        fix = "give base_url=http://127.0.0.1:8000/v1 of a server on this machine, or choose a model that answers here"
        yield CREDENTIALS.note(_NAME, found, f"{fix}; {TRUSTED} names one that your agreement covers")


def _refused(environment: Mapping[str, str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return models that a variable leads away, by why they are refused, and those that go by themselves, by where."""
    told: dict[str, list[str]] = defaultdict(list)
    untold: dict[str, list[str]] = defaultdict(list)
    for name in PLACES:
        away = [one for one in known_destinations(name, {}, environment) if not _is_here(one)]
        causes = [(cause, one) for one in away if (cause := refusal(one, environment))]
        for cause, one in causes[:1]:
            home = endpoints.origin(one.url) if one.url else "wherever its provider is"
            (told[cause] if one.source else untold[home]).append(name)
    return told, untold


def _is_here(destination: Destination) -> bool:
    return bool(destination.url) and endpoints.is_loopback(endpoints.host(destination.url))
