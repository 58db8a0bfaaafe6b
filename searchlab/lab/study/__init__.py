"""Studies: the loop that proposes, measures and learns, and what it keeps account of."""

from searchlab.lab.study.best import Best
from searchlab.lab.study.finish import Finish
from searchlab.lab.study.joint import JointStudy
from searchlab.lab.study.ledger import Ledger
from searchlab.lab.study.quality import Quality, judge
from searchlab.lab.study.study import IncumbentLook, Round, Study
from searchlab.lab.study.subject import Candidate, Subject, TableSubject, TaskSubject

__all__ = [
    "Best",
    "Candidate",
    "Finish",
    "Ledger",
    "IncumbentLook",
    "JointStudy",
    "Quality",
    "Round",
    "Study",
    "Subject",
    "TableSubject",
    "TaskSubject",
    "judge",
]
