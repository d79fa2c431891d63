"""Medical vision-language benchmarks and model adapters for lmms-eval."""

__version__ = "0.1.0"
