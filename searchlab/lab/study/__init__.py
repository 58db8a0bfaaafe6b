"""Studies: the loop that proposes, measures and learns, and what it keeps account of."""

from searchlab.lab.study.best import Best
from searchlab.lab.study.finish import Finish
from searchlab.lab.study.ledger import Ledger
from searchlab.lab.study.network import Network
from searchlab.lab.study.quality import Quality, judge
from searchlab.lab.study.study import Look, Round, Study
from searchlab.lab.study.subject import Candidate, Subject, TableSubject, TaskSubject

__all__ = [
    "Best",
    "Candidate",
    "Finish",
    "Ledger",
    "Look",
    "Network",
    "Quality",
    "Round",
    "Study",
    "Subject",
    "TableSubject",
    "TaskSubject",
    "judge",
]
