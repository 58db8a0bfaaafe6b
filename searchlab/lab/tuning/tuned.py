"""Tuned: the programs that earlier searches found, for whoever compiles a graph that contains the same tasks.

    tuned = Tuned.from_run("runs/resnet18")
    searchlab.graph.compile(module, target, tuned=tuned)

A task is known by its plain program, whatever that is called, by the inputs that are weights, and by the target.  For
a program with open sizes there is a table: a few programs for all sizes, and which of them is run for which.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from searchlab import targets
from searchlab.errors import ExportError, IRError, SearchLabError, SpaceError
from searchlab.graph.model.options import CompileOptions
from searchlab.graph.size_table import SizeTable
from searchlab.graph.tasks import program_key
from searchlab.ir.jsonform import from_json, to_json
from searchlab.ir.program import Program
from searchlab.lab.export.finding import best_programs
from searchlab.lab.folder import atomic
from searchlab.lab.folder.file_forms import FileForm
from searchlab.lab.folder.found import Found
from searchlab.lab.tuning.kept_tables import KeptTable, kept_tables
from searchlab.lab.tuning.model_result import model_results

FILE = "tuned.json"  # in a run folder: its programs, so that no space has to be made again
DEFAULT = "default"
RIVALS = 3  # programs of a task that are timed inside the model
_AGAIN = "delete it: the programs are made again from the records"


class TunedFile(FileForm):
    """The form of the file: programs as JSON, by the hash of the program that was measured.

    `chosen` is the hash of the program that each task is compiled to, or "default", by the key of the task.
    """

    programs: dict[str, str]
    chosen: dict[str, str] = {}


@dataclass(frozen=True, eq=False)
class TunedTask:
    """What a run found for a task; `kept` says that nothing was faster than the default schedule.

    `default` says so of the whole model, in which that schedule was faster than what won by itself.
    """

    found: Found
    stored: Mapping[str, str] = field(repr=False)  # programs as JSON, by hash
    default: bool = False

    @property
    def kept(self) -> bool:
        """Whether the default schedule won."""
        return self.default or self.found.origin == "default"

    @property
    def identity(self) -> str:
        """The hash of the program, or "default"."""
        record = None if self.kept else self.found.record
        return DEFAULT if record is None else record.program

    @property
    def seconds(self) -> float:
        """The time of one run of the kernel."""
        return self.found.seconds

    @cached_property
    def program(self) -> Program:
        """The scheduled program, as it was measured."""
        record = self.found.record
        text = None if record is None else self.stored.get(record.program)
        if text is not None and record is not None:
            program = from_json(text)
            if program.hash == record.program:
                return program
        return self.found.program


@dataclass(frozen=True, eq=False)
class Tuned:
    """A source of scheduled programs for `compile`: those of tasks that runs have searched for one target.

    `asked` notes for every task that was asked for whether it was known.  `options` are those of the tuned model:
    others may lead to other tasks.
    """

    target: targets.Target
    tasks: Mapping[str, TunedTask] = field(repr=False)
    tables: Mapping[str, KeptTable] = field(default_factory=dict, repr=False)
    options: CompileOptions = CompileOptions()
    asked: dict[str, bool] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_run(*folders: str | os.PathLike[str], target: targets.Target | None = None) -> Tuned:
        """The best programs of run folders, for this machine unless a target is given; of two the faster."""
        machine = target or targets.detect()
        found: dict[str, TunedTask] = {}
        models = [result for folder in folders for result in model_results(Path(folder))]
        for folder in folders:
            for key, task in _tasks(Path(folder), machine):
                if key not in found or task.seconds < found[key].seconds:
                    found[key] = task
        options = next((result.tuned_options for result in models), CompileOptions())
        return Tuned(machine, found, _tables(folders, machine), options)

    @staticmethod
    def ranked(folder: str | os.PathLike[str], target: targets.Target, top: int = RIVALS) -> tuple[Tuned, ...]:
        """The best programs of a run by themselves, the second ones, and so on; of fewer the last is taken again.

        All have the same tables for open sizes.
        """
        found, stored = dict(_found(Path(folder), target, top)), _file(Path(folder)).programs
        tables = _tables([folder], target)
        ranks = range(max(map(len, found.values()), default=0))
        return tuple(
            Tuned(target, {key: TunedTask(few[min(n, len(few) - 1)], stored) for key, few in found.items()}, tables)
            for n in ranks
        )

    def __len__(self) -> int:
        return len(self.tasks)

    def known(self, program: Program, weights: Iterable[str]) -> TunedTask | KeptTable | None:
        """What is known of the task of a plain program; None if it was not searched."""
        key = program_key(program, frozenset(weights))
        return self.tables.get(key) if program.sizes else self.tasks.get(key)

    def key(self, program: Program, weights: Iterable[str]) -> str | None:
        """The key of a plain program among the tasks; None if it is none of them."""
        key = program_key(program, frozenset(weights))
        return None if program.sizes or key not in self.tasks else key

    def __call__(self, program: Program, weights: frozenset[str]) -> Program | SizeTable[Program] | None:
        """The scheduled programs of a plain one; None if the default schedule is the best that is known."""
        task, key = self.known(program, weights), program_key(program, weights)
        self.asked[key] = task is not None
        try:
            if isinstance(task, KeptTable):
                return task.programs_for(program).map(lambda found: replace(found, name=program.name))
            if task is not None and not task.kept:
                return replace(task.program, name=program.name)
        except (ExportError, SpaceError, IRError) as e:
            warnings.warn(f"{e}; the default schedule is used", stacklevel=2)
            self.asked[key] = False
        return None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the programs to a file, from which `from_run` reads them if it is in the folder of the run."""
        programs = {}
        for task in self.tasks.values():
            try:
                program = None if task.kept else task.program
            except SearchLabError:  # it can no longer be made, which is said when it is asked for
                program = None
            if program is not None:
                programs[program.hash] = to_json(program)
        chosen = {key: task.identity for key, task in self.tasks.items()}
        atomic.replace_json(Path(path), {"programs": programs, "chosen": chosen})
        return Path(path)


def _tasks(folder: Path, target: targets.Target) -> Iterator[tuple[str, TunedTask]]:
    """What each task of a run is compiled to: what was chosen in the whole model, or the fastest by itself."""
    file = _file(folder)
    for key, few in _found(folder, target, RIVALS if file.chosen else 1):
        tasks = [TunedTask(found, file.programs) for found in few]
        tasks.append(replace(tasks[0], default=True))
        yield key, next((task for task in tasks if task.identity == file.chosen.get(key)), tasks[0])


def _found(folder: Path, target: targets.Target, top: int) -> Iterator[tuple[str, list[Found]]]:
    """The best programs of each task of a run for a target, the fastest first."""
    for few in best_programs(folder, top=top).values():
        best = few[0]
        if not best.cell.recorded and best.target.fingerprint() == target.fingerprint():
            yield program_key(best.workload.program, best.workload.weights), few


def _tables(folders: Iterable[str | os.PathLike[str]], target: targets.Target) -> dict[str, KeptTable]:
    """The tables of runs for a target; of two for the same program the faster."""
    found: dict[str, KeptTable] = {}
    for table in (table for folder in folders for table in kept_tables(folder)):
        other = found.get(table.key)
        if table.target == target.fingerprint() and (other is None or table.seconds < other.seconds):
            found[table.key] = table
    return found


def _file(folder: Path) -> TunedFile:
    data: dict[str, Any] | None = atomic.known_json(folder / FILE, TunedFile, _AGAIN)
    return TunedFile(programs={}) if data is None else TunedFile(**data)
