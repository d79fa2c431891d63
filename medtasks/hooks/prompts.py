"""Prompts, targets and options of a document.

``question`` fills the template of a task, ``messages`` is the same for chat models; ``lettered`` and ``closed`` are for
questions with options of letters and for yes/no questions. Those with ``judged`` stop without an LLM judge.
"""

from medtasks.prompts.judged import messages as judged_messages
from medtasks.prompts.judged import messages_with_judge_or_without, prompt_with_judge_or_without
from medtasks.prompts.judged import paired_prompt as judged_lettered
from medtasks.prompts.judged import prompt as judged
from medtasks.prompts.template import (
    closed_option_texts,
    closed_target,
    letters,
    messages,
    option_texts,
    target,
)
from medtasks.prompts.template import closed_prompt as closed
from medtasks.prompts.template import lettered_prompt as lettered
from medtasks.prompts.template import prompt as question
