"""The harness's model plug-ins: ours among them, and those of others that stand in its way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medtasks.audit.doctor.children import Told
from medtasks.audit.doctor.findings import PLUG_INS, Finding, State
from medtasks.audit.doctor.installed import harness_requirement

_OURS = "medtasks"
_ENDS = "it ends the process"


@dataclass(frozen=True)
class _PlugIn:
    """One entry point of the group ``lmms_eval.models``, in the order in which the harness loads them."""

    name: str
    distribution: str
    version: str
    models: Sequence[str] = ()
    error: str = ""
    warnings: Sequence[str] = ()

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

    Without ``autoload`` the user lets our plug-in register nothing, which is said elsewhere.
    """
    registry = told.step("registry")
    if registry["error"]:
        found = f"the harness's models cannot be imported ({registry['error']})"
        fix = f"mend what it names (LMMS_EVAL_PLUGINS, too, is read there), or: pip install '{harness_requirement()}'"
        yield PLUG_INS.problem("registry", found, fix)
        return
    fields = [step for key, step in told.steps.items() if key.startswith("plug-in ")]
    if told.broken_off is not None and "name" in told.broken_off:
        fields.append({**told.broken_off, "error": f"{_ENDS}, {told.how}"})
    known = _PlugIn.__annotations__
    loaded = [_PlugIn(**{name: value for name, value in one.items() if name in known}) for one in fields]
    broken = next((index for index, one in enumerate(loaded) if one.error), len(loaded))
    if broken < len(loaded):
        yield _broken(loaded[broken], [later.name for later in loaded[broken + 1 :]])
    if broken == len(loaded) or any(one.is_ours for one in loaded[:broken]):
        yield from _ours(next((one for one in loaded if one.is_ours), None), autoload=autoload)


def _broken(one: _PlugIn, hidden: Sequence[str]) -> Finding:
    found = f"{one} cannot be loaded ({one.error}), "
    if one.ends_the_harness:
        found += "and takes every run of the harness with it"
    else:
        found += "and the harness loads none after it" + (f": it hides {', '.join(hidden)}" if hidden else "")
    remove = f"pip uninstall {one.distribution}" if one.distribution else "remove it"
    fix = "pip install --force-reinstall medtasks" if one.is_ours else f"{remove}, or install a version that loads"
    costly = one.is_ours or one.ends_the_harness or _OURS in hidden
    return Finding(PLUG_INS, one.name, State.PROBLEM if costly else State.WARNING, found, fix)


def _ours(ours: _PlugIn | None, *, autoload: bool) -> Iterator[Finding]:
    if ours is None:
        found = "the harness has no entry point by which it finds medtasks, so that our tasks and models do not exist"
        fix = "pip install --force-reinstall medtasks, or in a clone: pip install -e ."
        yield PLUG_INS.problem(_OURS, found, fix)
    elif ours.models:
        yield PLUG_INS.ok(_OURS, f"the harness finds medtasks {ours.version} with {len(ours.models)} models")
    elif autoload:
        cause = ours.warnings[0] if ours.warnings else "it names no models"
        found = f"medtasks does not register itself: {cause}"
        yield PLUG_INS.problem(_OURS, found, f"pip install '{harness_requirement()}'")
