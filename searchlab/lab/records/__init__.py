"""Measurements on disk: append-only JSON lines, one self-describing record each.

store = Store("records.jsonl")
outcome = store.reuse(job) or measure(job)
store.append(Record.from_outcome(job, outcome, space="sketch", knobs=knobs))
store.best(job.workload.key)
"""

from searchlab.lab.records.identity import job_key, reuse_key, toolchain
from searchlab.lab.records.index import Index
from searchlab.lab.records.lines import SCHEMA, converter, decode, encode
from searchlab.lab.records.merging import Merged, add_new, merge
from searchlab.lab.records.record import Record, SearchPlace
from searchlab.lab.records.store import RecordStore

__all__ = [
    "SCHEMA", "Index", "Merged", "Record", "RecordStore", "SearchPlace", "add_new", "converter", "decode", "encode",
    "job_key", "merge", "reuse_key", "toolchain",
]  # fmt: skip
