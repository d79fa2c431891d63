r"""Static figures of a report, by matplotlib, the same ones for the page and for a paper.

Keys of the figures, where ``TASK`` is :attr:`TaskReport.name`:

=============================  =================================================================================
``summary``                    main metric of every task with its interval and the baselines; always the first key
``TASK/groups/COLUMN``         main metric by group of one column, all rules
``TASK/pairs``                 outcomes of pairs, a bar per rule
``TASK/gains``                 task against its sanity variants
``TASK/reliability/RULE``      reliability diagram of one rule's likelihoods
``TASK/coverage/RULE``         accuracy against coverage
=============================  =================================================================================

A figure without anything to show has no key. An SVG starts with ``<svg`` (no XML declaration or doctype), carries
``role="img"``, ``<title>`` and ``<desc>``, has neither style sheet nor style attributes, and its ids are prefixed so
that many fit on one page. Figures show scores and names of groups, and nothing of single questions.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medtasks.audit.report.contents import RunReport
from medtasks.audit.report.figures.outcome_figures import coverage_figure, pair_figure, reliability_figure
from medtasks.audit.report.figures.score_figures import gain_figure, group_figures, summary_figure
from medtasks.audit.report.figures.style import RC_PARAMS, Drawing, file_content, rule_looks, svg_element
from medtasks.audit.report.wording import coded
from medtasks.errors import MedTasksError


def figures(report: RunReport) -> dict[str, str]:
    """Return every figure of a report as an SVG element that may stand in a page, by key."""
    with _style():
        return {key: svg_element(drawing, key) for key, drawing in _drawings(report)}


def write_figures(report: RunReport, folder: Path) -> list[Path]:
    """Write every figure of a report into a folder, as SVG and as PNG with 200 dots per inch, and return the files.

    Files are called after the keys, such as ``mediconfusion.groups.categories.svg``; what is no letter, digit or one of
    ``_-`` in a name is written as its code. The same report gives the same files. The folder is made if it is not
    there. MedTasksError: it cannot be written to.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _style():
            for key, drawing in _drawings(report):
                name = ".".join(coded(part, "-", also="-") for part in key.split("/"))
                contents = {"svg": svg_element(drawing, key).encode(), "png": file_content(drawing.figure, "png")}
                for form, content in contents.items():
                    file = folder / f"{name}.{form}"
                    file.write_bytes(content)
                    written.append(file)
    except OSError as error:
        raise MedTasksError(
            f"cannot write figures into {folder}: {error.strerror or error}; name another folder"
        ) from error
    return written


def _drawings(report: RunReport) -> Iterator[tuple[str, Drawing]]:
    """Draw one figure after the other, so that no more than one is in memory."""
    looks = rule_looks(report)
    if summary := summary_figure(report, looks):
        yield "summary", summary
    for task in report.tasks:
        for column, drawing in group_figures(task, looks).items():
            yield f"{task.name}/groups/{column}", drawing
        for kind, found in (("pairs", pair_figure(task)), ("gains", gain_figure(task, looks))):
            if found:
                yield f"{task.name}/{kind}", found
        for rule in task.calibration:
            if task.calibration[rule].bins:
                yield f"{task.name}/reliability/{rule}", reliability_figure(task, rule)
            yield f"{task.name}/coverage/{rule}", coverage_figure(task, rule)


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(RC_PARAMS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a viewer's font may well have it
        yield
