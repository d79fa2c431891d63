"""Medical vision-language benchmarks and model adapters for lmms-eval."""

import os

__version__ = "0.1.0"

# In a checkout, tasks_yaml/ and model_adapters/ stand beside this folder and not in it. Python started in the checkout
# imports from there even when the package is installed, so they have to be found there, too.
if not os.path.isdir(os.path.join(os.path.dirname(__file__), "tasks_yaml")):
    __path__.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
