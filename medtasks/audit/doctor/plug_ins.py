"""The harness's model plug-ins: ours among them, and those of others that stand in its way."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.audit.doctor.child_process import Told
from medtasks.audit.doctor.findings import PLUG_INS, Finding, State
from medtasks.audit.doctor.packages import harness_requirement
from medtasks.harness import AUTOLOAD_VARIABLE

_OURS = "medtasks"
_PREFIX = "plug-in "
_ENDS = "it ends the process"


@dataclass(frozen=True)
class _PlugIn:
    """One entry point of the group ``lmms_eval.models``, in the order in which the harness loads them."""

    name: str
    distribution: str
    version: str
    models: Sequence[str]
    error: str
    warnings: Sequence[str]

    @property
    def is_ours(self) -> bool:
        return self.name == _OURS and self.distribution in (_OURS, "")

    @property
    def ends_the_harness(self) -> bool:
        return self.error.startswith((_ENDS, "SystemExit"))  # the harness catches neither

    def __str__(self) -> str:
        return f"plug-in '{self.name}' of {self.distribution or 'an unknown package'} {self.version}".rstrip()


def plug_ins(told: Told, *, autoload: bool) -> Iterator[Finding]:
    """Look at how the harness's loading of plug-ins went, as the child ``plug_ins`` told.

    Without ``autoload`` the user lets our plug-in register nothing.
    """
    registry = told.step("registry")
    if registry["error"]:
        found = f"the harness's models cannot be imported ({registry['error']})"
        fix = f"mend what it names (LMMS_EVAL_PLUGINS, too, is read there), or: pip install '{harness_requirement()}'"
        yield PLUG_INS.problem("registry", found, fix)
        return
    loaded = _found(told)
    broken = next((index for index, one in enumerate(loaded) if one.error), len(loaded))
    if broken < len(loaded):
        yield _broken(loaded, broken)
    if broken == len(loaded) or any(one.is_ours for one in loaded[:broken]):
        yield from _ours(loaded, autoload=autoload)
    if told.broken_off is None:
        yield from _shared_names(loaded, registry["built_in"], told.step("together"))


def _found(told: Told) -> list[_PlugIn]:
    fields = [step for key, step in told.steps.items() if key.startswith(_PREFIX)]
    if told.broken_off is not None and "name" in told.broken_off:
        fields.append({**told.broken_off, "error": f"{_ENDS}, {told.how}"})
    defaults: dict[str, Any] = {"models": (), "warnings": ()}
    return [_PlugIn(**{name: {**defaults, **one}[name] for name in _PlugIn.__annotations__}) for one in fields]


def _broken(plug_ins: Sequence[_PlugIn], index: int) -> Finding:
    one, hidden = plug_ins[index], [later.name for later in plug_ins[index + 1 :]]
    found = f"{one} cannot be loaded ({one.error}), "
    if one.ends_the_harness:
        found += "and takes every run of the harness with it"
    else:
        found += "and the harness loads none after it" + (f": it hides {', '.join(hidden)}" if hidden else "")
    remove = f"pip uninstall {one.distribution}" if one.distribution else "remove it"
    fix = "pip install --force-reinstall medtasks" if one.is_ours else f"{remove}, or install a version that loads"
    costly = one.is_ours or one.ends_the_harness or _OURS in hidden
    return Finding(PLUG_INS, one.name, State.PROBLEM if costly else State.WARNING, found, fix)


def _ours(plug_ins: Sequence[_PlugIn], *, autoload: bool) -> Iterator[Finding]:
    ours = next((one for one in plug_ins if one.is_ours), None)
    if ours is None:
        found = "the harness has no entry point by which it finds medtasks, so that our tasks and models do not exist"
        fix = "pip install --force-reinstall medtasks, or in a clone: pip install -e ."
        yield PLUG_INS.problem(_OURS, found, fix)
    elif ours.models:
        yield PLUG_INS.ok(_OURS, f"the harness finds medtasks {ours.version} with {len(ours.models)} models")
    elif not autoload:
        found = f"medtasks is found and registers nothing, because of {AUTOLOAD_VARIABLE}=0"
        yield PLUG_INS.note(_OURS, found, f"unset {AUTOLOAD_VARIABLE}")
    else:
        cause = ours.warnings[0] if ours.warnings else "it names no models"
        fix = f"pip install '{harness_requirement()}'"
        yield PLUG_INS.problem(_OURS, f"medtasks does not register itself: {cause}", fix)


def _shared_names(
    plug_ins: Sequence[_PlugIn], built_in: Sequence[str], together: Mapping[str, Any]
) -> Iterator[Finding]:
    """Compare the models' names: of several with one name the harness takes the last, without a word."""
    owners: dict[str, list[str]] = defaultdict(list)
    for name in built_in:
        owners[name].append("lmms-eval itself")
    for one in plug_ins:
        for name in one.models:
            owners[name].append(one.distribution or one.name)
    for name, who in owners.items():
        if len(who) < 2:
            continue
        chosen = together["classes"].get(name, "none of them")
        lost = _OURS in who and not chosen.startswith(f"{_OURS}.")
        found = f"model '{name}' is registered by {' and by '.join(who)}, and '--model {name}' takes {chosen}"
        others = [owner for owner in dict.fromkeys(who) if owner not in (_OURS, "lmms-eval itself")]
        fix = f"{f'pip uninstall {others[-1]}' if others else 'update both'}, or have the model renamed there"
        yield Finding(PLUG_INS, name, State.PROBLEM if lost else State.WARNING, found, fix)
