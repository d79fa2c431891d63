"""Find the packages: two folders of the checkout are installed inside ``medtasks``. All else is in setup.cfg."""

from setuptools import find_packages, setup

adapters = [f"medtasks.{package}" for package in find_packages(include=["model_adapters*"])]
setup(packages=[*find_packages(include=["medtasks*"]), *adapters, "medtasks.tasks_yaml"])
