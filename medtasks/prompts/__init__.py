"""Prompts: templates filled with a document's fields, the images at their places, solved examples before them.

The hooks here get a document ``doc`` and, as ``lmms_eval_specific_kwargs``, the settings that the task's YAML has under
this name for the family of the model, such as its ``template``.
"""
