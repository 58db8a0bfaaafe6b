"""Studies: the loop that proposes, measures and learns, with its bookkeeping of trials, times and records."""

from searchlab.lab.study.best import Best
from searchlab.lab.study.fallback import Fallback, Origin, origin_of, taken_s
from searchlab.lab.study.family_study import FamilyStudy
from searchlab.lab.study.family_tuning import FamilyKernel, TunedFamily, tune_family
from searchlab.lab.study.finish import Finish
from searchlab.lab.study.incumbent import IncumbentLook
from searchlab.lab.study.joint import JointStudy, Search
from searchlab.lab.study.ledger import Ledger
from searchlab.lab.study.loop import Round, search_loop
from searchlab.lab.study.quality import Quality, judge
from searchlab.lab.study.size_dispatch import AnySizeProgram, FamilyTable, SizeInterval, SizeTimes
from searchlab.lab.study.study import Study, StudySettings
from searchlab.lab.study.subject import Candidate, NetworkSubject, SpaceSubject, Subject, TableSubject, TaskSubject

__all__ = [
    "AnySizeProgram", "Best", "Candidate", "Fallback", "FamilyKernel", "FamilyStudy", "FamilyTable", "Finish",
    "IncumbentLook", "JointStudy", "Ledger", "NetworkSubject", "Origin", "Quality", "Round", "Search", "SizeInterval",
    "SizeTimes", "SpaceSubject", "Study", "StudySettings", "Subject", "TableSubject", "TaskSubject", "TunedFamily",
    "judge", "origin_of", "search_loop", "taken_s", "tune_family",
]  # fmt: skip
