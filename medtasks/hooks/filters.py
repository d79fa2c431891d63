"""Filters that read answers from replies."""

from medtasks.lmms.filters import ChooseWith, ReadWith
