"""All that leans on the inside of lmms-eval: its models, its evaluation, what it gives in place of replies."""
