"""Short names of GMAI-MMBench's departments, clinical tasks and granularities, as its paper's tables use them.

Source: Chen et al., "GMAI-MMBench", 2024, tables 4 to 7 and 12 and the supplement. ``ASR``, ``ACR`` and ``OR-NH`` of
table 13 are not defined there; they stand in the places of ``AR`` and ``OR-HN``.
"""

from collections.abc import Mapping

CLINICAL_TASKS: Mapping[str, str] = {
    "AR": "Attribute Recognition",
    "ASR": "Attribute Recognition",
    "ACR": "Attribute Recognition",
    "BVR": "Blood Vessels Recognition",
    "B": "Bone",
    "CR": "Cell Recognition",
    "C": "Counting",
    "DD": "Disease Diagnosis",
    "IQG": "Image Quality Grading",
    "MR": "Microorganism Recognition",
    "M": "Muscle",
    "NT": "Nervous Tissue",
    "OR-A": "Organ Recognition - Abdomen",
    "OR-HN": "Organ Recognition - Head and Neck",
    "OR-NH": "Organ Recognition - Head and Neck",
    "OR-P": "Organ Recognition - Pelvic",
    "OR-T": "Organ Recognition - Thorax",
    "SG": "Severity Grading",
    "SAR": "Surgeon Action Recognition",
    "SIR": "Surgical Instrument Recognition",
    "SWR": "Surgical Workflow Recognition",
}
DEPARTMENTS: Mapping[str, str] = {
    "CS": "Cardiovascular Surgery",
    "D": "Dermatology",
    "E": "Endocrinology",
    "GH": "Gastroenterology and Hepatology",
    "GS": "General Surgery",
    "H": "Hematology",
    "ID": "Infectious Diseases",
    "LMP": "Laboratory Medicine and Pathology",
    "NH": "Nephrology and Hypertension",
    "N": "Neurosurgery",
    "N/A": "None",
    "OG": "Obstetrics and Gynecology",
    "OM": "Oncology (Medical)",
    "O": "Ophthalmology",
    "OS": "Orthopedic Surgery",
    "ENT/HNS": "Otolaryngology (ENT)/Head and Neck Surgery",
    "PM": "Pulmonary Medicine",
    "SM": "Sports Medicine",
    "U": "Urology",
}
GRANULARITIES: Mapping[str, str] = {
    "contour": "Contour Level",
    "Seg C": "Contour Level",
    "mask": "Mask Level",
    "Seg M": "Mask Level",
    "box": "Box Level",
    "2D Det": "Box Level",
    "image": "Image Level",
    "2D Cls": "Image Level",
    "2D Mcls": "Image Level",
}
ABBREVIATIONS: Mapping[str, Mapping[str, str]] = {
    "clinical_task": CLINICAL_TASKS,
    "department": DEPARTMENTS,
    "granularity": GRANULARITIES,
}
"""Full name by short name, by column of the documents."""
