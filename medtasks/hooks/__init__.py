r"""The names that task files use.

A task file that the harness reads says with them how a question is asked, and how its reply is scored::

    task: my_vqa
    dataset_path: json
    dataset_kwargs: {data_files: {test: questions.jsonl}}
    test_split: test
    output_type: generate_until
    lmms_eval_specific_kwargs:
      default: {template: "{{ question }}\n{{ options }}\nAnswer with the letter."}
    doc_to_visual: !function medtasks.hooks.images.images
    doc_to_text: !function medtasks.hooks.prompts.question
    doc_to_target: !function medtasks.hooks.prompts.target
    process_results: !function medtasks.hooks.choice.process_results
    metric_list: !function medtasks.hooks.choice.METRIC_LIST
    filter_list:
      - {name: robust, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: robust_choice}]}
    metadata: {version: 1}

A line of ``questions.jsonl`` is one question: ``{"question": "Normal?", "options": ["no", "yes"], "answer": "B",
"image_file": "/images/1.png"}``. ``choice``, ``pairs`` and the other modules of one question type each have
``process_results`` and ``METRIC_LIST``. Prompts are in ``prompts``, ``few_shot`` and ``volumes``, images in ``images``,
filters in ``filters``. A name here stays until 2.0.0, because task files of users hold it.
"""
