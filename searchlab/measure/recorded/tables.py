"""Tables of recorded measurements, and the formats they are read from.

`load` reads tables recorded by searchlab (shipped with it, or written by `save`), folders of converted GPU tables
with an index.json, and result files in the T4 format of the auto-tuning community.  All of them become a `Table`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from searchlab.errors import SearchLabError
from searchlab.measure.job import Outcome, Status
from searchlab.measure.recorded import t4_tables
from searchlab.measure.recorded.table_files import check_columns, checked, column, names_in, read_csv, read_json
from searchlab.search import Knob, RecordedSpace, Sketch, SpaceError, category, menu
from searchlab.search.knob import Floats
from searchlab.search.recorded import Coverage

FORMAT = "searchlab-recorded"
_FLOAT = "%.7g"
_MEASURED = ("status", "seconds", "build_s", "check_s", "run_s", "overhead_s", "times", "error")
_INDEXED_COLUMNS = ("status", "time_ms", "compile_ms", "verify_ms", "n_runs", "framework_ms")
_ACCEPTED = (
    "accepted: a header that searchlab.measure.recorded.tables.save wrote (.json), a T4 file (.json, .json.gz,"
    " .json.xz), a table in a folder with an index.json"
)


@dataclass(frozen=True, eq=False)
class RecordedRuns:
    """The raw run times of every row, in seconds; rows may have different numbers of runs."""

    flat: Floats
    first: npt.NDArray[np.int64]

    @staticmethod
    def of(rows: Iterable[Sequence[float]]) -> RecordedRuns:
        """The runs of rows in their order."""
        lists = [list(r) for r in rows]
        first = np.cumsum([0, *(len(r) for r in lists)])
        return RecordedRuns(np.array([x for r in lists for x in r], dtype=np.float64), first.astype(np.int64))

    def __getitem__(self, row: int) -> Floats:
        return self.flat[self.first[row] : self.first[row + 1]]


@dataclass(frozen=True, eq=False)
class Table:
    """The measurements of every row of a recorded space, and their cost; all times in seconds.

    `seconds` is the figure that searches minimise, infinite where the row failed.  A row costs its build (`build_s`),
    the check of its result (`check_s`), all its timed runs (`run_s`) and the overhead around them (`overhead_s`).
    """

    space: RecordedSpace
    status: tuple[Status, ...]
    seconds: Floats
    build_s: Floats
    check_s: Floats
    run_s: Floats
    overhead_s: Floats
    errors: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    read_runs: Callable[[], RecordedRuns] | None = None

    def __post_init__(self) -> None:
        rows = self.space.size.valid
        for name in ("status", "seconds", "build_s", "check_s", "run_s", "overhead_s"):
            if len(getattr(self, name)) != rows:
                raise SpaceError(f"table '{self.name}': {len(getattr(self, name))} entries of {name} for {rows} rows")
        unknown = set(self.status) - set(get_args(Status))
        if unknown:
            raise SpaceError(f"table '{self.name}': unknown status {', '.join(sorted(unknown))}")

    def __len__(self) -> int:
        return len(self.status)

    def __repr__(self) -> str:
        return f"<table {self.name}: {len(self)} rows, {int(self.ok.sum())} ok, best {self.best:.6g} s>"

    @property
    def name(self) -> str:
        """The name of its space."""
        return self.space.name

    @cached_property
    def ok(self) -> npt.NDArray[np.bool_]:
        """Which rows did not fail."""
        return np.array([s == "ok" for s in self.status])

    @property
    def cost_s(self) -> Floats:
        """The cost of measuring each row, in seconds."""
        return self.build_s + self.check_s + self.run_s + self.overhead_s

    @cached_property
    def best(self) -> float:
        """The fastest time; infinite if all rows failed."""
        return float(self.seconds.min(initial=np.inf))

    @cached_property
    def median(self) -> float:
        """The median of the rows that did not fail."""
        return float(np.median(self.seconds[self.ok])) if self.ok.any() else float("inf")

    @cached_property
    def runs(self) -> RecordedRuns | None:
        """The raw runs, read on first use; None if they were not recorded."""
        return self.read_runs() if self.read_runs is not None else None


def load(source: str | Path) -> Table:
    """The table with a name or path.

    A name is that of a table shipped with searchlab (`shipped`); a path is that of a header written by `save`, of a T4
    file, or of a table in a folder with an index.json, as in `gpu-replay/gemm@RTX_3090`.
    """
    with _told(source):
        return _load(source)


@contextmanager
def _told(source: str | Path) -> Iterator[None]:
    """Turns any error that a damaged or foreign file causes into one that names the file."""
    try:
        yield
    except SearchLabError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as e:
        what = f"{e} is missing" if isinstance(e, KeyError) else f"{type(e).__name__}: {e}"
        raise SpaceError(f"{source} is not a recorded table: {what}; {_ACCEPTED}") from e


def check(source: str | Path) -> None:
    """Refuses a table that `load` would refuse; for one in a folder with an index.json, only the columns are read."""
    path = Path(source)
    if str(source) not in shipped() and (path.parent / "index.json").is_file():
        name = path.name.removesuffix(".csv.xz")
        with _told(source):
            for entry in read_json(path.parent / "index.json")["files"]:
                if entry["file"] == f"{name}.csv.xz":
                    return check_columns(path.parent / entry["file"], [*entry["params"], *_INDEXED_COLUMNS])
    load(source)


def _load(source: str | Path) -> Table:
    text = str(source)
    if text in shipped():
        return load_recorded(Path(str(_SHIPPED / f"{text}.json")))
    path = Path(source)
    if (path.parent / "index.json").is_file() and path.name != "index.json":
        return load_indexed(path.parent, path.name.removesuffix(".csv.xz"))
    if not path.is_file():
        raise SpaceError(f"there is no recorded table '{text}'; shipped: {', '.join(shipped()) or 'none'}")
    if ".csv" in path.suffixes:
        raise SpaceError(_alone(path))
    data = read_json(path)
    return load_recorded(path) if data.get("format") == FORMAT else load_t4(path)


def _alone(path: Path) -> str:
    """Why rows without a header are not a table: the header says what each column means."""
    header = path.with_name(f"{path.name.partition('.csv')[0]}.json")
    if header.is_file():
        return f"{path} holds the rows of a table; name its header, {header.name}"
    found = ", ".join(names_in(path)) or "none"
    expected = f"sketch, one for each knob, {', '.join(_MEASURED)}"
    wanted = f"expected a header {header.name} and the columns {expected}"
    return f"{path} is not a recorded table: {wanted}; found the columns {found}, and no header; {_ACCEPTED}"


# --- converted GPU tables ---------------------------------------------------------------------------------------------

_INDEXED_STATUS: dict[str, Status] = {"ok": "ok", "compile_error": "build", "runtime_error": "run"}


def indexed_names(folder: str | Path) -> list[str]:
    """The tables in a folder with an index.json."""
    return [f["file"].removesuffix(".csv.xz") for f in read_json(Path(folder) / "index.json")["files"]]


def load_indexed(folder: str | Path, name: str, categories: Collection[str] = ()) -> Table:
    """A table of a folder with an index.json; parameters named in `categories` have no order."""
    folder = Path(folder)
    found = [f for f in read_json(folder / "index.json")["files"] if f["file"] == f"{name}.csv.xz"]
    if not found:
        raise SpaceError(f"{folder} has no table '{name}'; it has: {', '.join(indexed_names(folder))}")
    entry = found[0]
    rows = read_csv(folder / entry["file"], entry.get("sha256"), [*entry["params"], *_INDEXED_COLUMNS])
    knobs = [_parameter(n, values, n in categories) for n, values in entry["params"].items()]
    options = np.stack([k.find((int(r[k.name]),) for r in rows) for k in knobs], axis=1).astype(np.int32)
    space = RecordedSpace.of(knobs, options, name, coverage=entry["kind"])
    seconds = column(rows, "time_ms", 1e-3, np.inf)
    return Table(
        space,
        tuple(_INDEXED_STATUS[r["status"]] for r in rows),
        seconds,
        column(rows, "compile_ms", 1e-3),
        column(rows, "verify_ms", 1e-3),
        # the recorded time is the mean of the runs, so this is their sum; simulations of other tools charge the same
        column(rows, "n_runs") * np.where(np.isfinite(seconds), seconds, 0),
        column(rows, "framework_ms", 1e-3),
        about={k: v for k, v in entry.items() if k not in ("params", "status")},
        read_runs=partial(_read_runs, folder / entry["runs_file"], entry.get("runs_sha256")),
    )


def _read_runs(path: Path, checksum: str | None) -> RecordedRuns:
    lines = checked(path, checksum).decode().split("\n")
    return RecordedRuns.of([float(x) * 1e-3 for x in line.split()] for line in lines)


def _parameter(name: str, values: Sequence[Any], unordered: bool) -> Knob:
    return category(name, values) if unordered else menu(name, values)


# --- T4 ---------------------------------------------------------------------------------------------------------------


def load_t4(
    path: str | Path, objective: str | None = None, coverage: Coverage = "pool", categories: Collection[str] = ()
) -> Table:
    """A result file in the T4 format (.json, also .gz or .xz).

    Results with status 'constraints' are illegal configurations, not rows; of duplicates the first counts.
    T4 does not say whether a file holds every legal configuration: pass coverage="exhaustive" if it does.
    """
    path = Path(path)
    document = t4_tables.load(path)
    kept = _t4_rows(path, document, objective)
    results = [r for r, _ in kept]
    knobs, constants = _t4_knobs(path, [r.configuration for r in results], categories)
    options = np.stack([k.find((_plain(r.configuration[k.name]),) for r in results) for k in knobs], axis=1)
    name = path.name.partition(".json")[0]
    phases = np.array([(r.build_s, r.check_s, sum(r.runs) or r.run_s, r.overhead_s) for r in results])
    build_s, check_s, run_s, overhead_s = phases.T
    return Table(
        RecordedSpace.of(knobs, options.astype(np.int32), name, coverage=coverage),
        tuple(r.status for r in results),
        np.array([seconds for _, seconds in kept]),
        build_s,
        check_s,
        run_s,
        overhead_s,
        about={**document.metadata, "constants": constants, "source": str(path)},
        read_runs=partial(RecordedRuns.of, [r.runs for r in results]),
    )


def _t4_rows(path: Path, document: t4_tables.Document, objective: str | None) -> list[tuple[t4_tables.T4Result, float]]:
    """The results of legal configurations, without duplicates, with the time that is minimised."""
    kept: dict[tuple[Any, ...], tuple[t4_tables.T4Result, float]] = {}
    for raw in document.results:
        r = document.read(raw)
        if r.status != "constraints":
            wanted = objective or (raw.get("objectives") or ["time"])[0]
            kept.setdefault(tuple(r.configuration.values()), (r, _t4_seconds(path, document, r, wanted)))
    if not kept:
        raise SpaceError(f"{path}: it holds no legal configuration")
    return list(kept.values())


def _t4_knobs(
    path: Path, configurations: Sequence[Mapping[str, Any]], categories: Collection[str]
) -> tuple[list[Knob], dict[str, Any]]:
    """Parameters that take several values become knobs: numbers in their order, words as categories."""
    knobs, constants = [], {}
    for name in configurations[0]:
        try:
            values = list(dict.fromkeys(_plain(c[name]) for c in configurations))
        except KeyError:
            raise SpaceError(f"{path}: not every configuration has '{name}'") from None
        words = any(isinstance(v, str) for v in values)
        if len(values) == 1:
            constants[name] = values[0]
        else:
            knobs.append(_parameter(name, values if words else sorted(values), words or name in categories))
    if not knobs:
        raise SpaceError(f"{path}: no parameter takes more than one value")
    return knobs, constants


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _t4_seconds(path: Path, document: t4_tables.Document, result: t4_tables.T4Result, wanted: str) -> float:
    if result.status != "ok":
        return float("inf")
    seconds = document.seconds(result, wanted)
    if seconds is None:
        names = ", ".join(result.measured)
        raise SpaceError(f"{path}: '{wanted}' is not measured as a time; name another objective of {names}")
    return seconds


# --- recorded by searchlab --------------------------------------------------------------------------------------------

_SHIPPED = files("searchlab") / "data" / "recorded"


def shipped() -> list[str]:
    """The names of the recorded spaces shipped with searchlab."""
    if not _SHIPPED.is_dir():
        return []
    return sorted(f.name.removesuffix(".json") for f in _SHIPPED.iterdir() if f.name.endswith(".json"))


def load_recorded(header: str | Path) -> Table:
    """A table that `save` wrote."""
    header = Path(header)
    about = read_json(header)
    if about.get("format") != FORMAT or about.get("format_version") != 1:
        raise SpaceError(f"{header}: not a recorded space of searchlab in format 1")
    _check_header(header, about)
    names = dict.fromkeys(k["name"] for s in about["sketches"] for k in s["knobs"])
    sketch = ["sketch"] if len(about["sketches"]) > 1 else []
    rows = read_csv(header.parent / about["file"], about["sha256"], [*sketch, *names, *_MEASURED])
    sketches = [_recorded_sketch(s, rows, bool(sketch)) for s in about["sketches"]]
    space = RecordedSpace(sketches, about["name"], about["version"], about["coverage"])
    return Table(
        space,
        tuple(cast(Status, r["status"]) for r in rows),
        column(rows, "seconds", missing=np.inf),
        column(rows, "build_s"),
        column(rows, "check_s"),
        column(rows, "run_s"),
        column(rows, "overhead_s"),
        tuple(r["error"] for r in rows),
        {k: v for k, v in about.items() if k != "sketches"},
        partial(RecordedRuns.of, [[float(x) for x in r["times"].split()] for r in rows]),
    )


def _recorded_sketch(about: Mapping[str, Any], rows: Sequence[Mapping[str, str]], several: bool) -> Sketch:
    """One sketch of a table with its rows; with `several` sketches, each row names its own."""
    knobs = tuple(Knob.from_json(k) for k in about["knobs"])
    own = [r for r in rows if not several or r["sketch"] == about["name"]]
    return Sketch(about["name"], knobs, rows=np.stack([_by_label(k, own) for k in knobs], axis=1))


def _check_header(header: Path, about: Mapping[str, Any]) -> None:
    texts = ("name", "version", "coverage", "file", "sha256")
    if wrong := [key for key in texts if not isinstance(about.get(key), str)]:
        raise SpaceError(f"{header}: '{wrong[0]}' is text, not {about.get(wrong[0])!r}")
    if about["coverage"] not in get_args(Coverage):
        raise SpaceError(f"{header}: coverage is {' or '.join(get_args(Coverage))}, not '{about['coverage']}'")


def _by_label(knob: Knob, rows: Sequence[Mapping[str, str]]) -> npt.NDArray[np.int32]:
    numbers = {knob.label(n): n for n in range(len(knob))}
    return np.array([numbers[r[knob.name]] for r in rows], dtype=np.int32)


def save(
    folder: str | Path,
    space: RecordedSpace,
    outcomes: Sequence[Outcome],
    about: Mapping[str, Any],
    overhead_s: Sequence[float] | None = None,
) -> Path:
    """Writes a recorded space with one outcome per row as <name>.csv.xz with a header <name>.json; returns the header.

    `about` says how it was recorded: machine, toolchain, date, protocol.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    raw = _csv_bytes(space, outcomes, overhead_s or [0.0] * len(outcomes))
    data = folder / f"{space.name}.csv.xz"
    data.write_bytes(raw)
    header = {
        "format": FORMAT, "format_version": 1, "name": space.name, "version": space.version, "coverage": space.coverage,
        "file": data.name, "rows": len(outcomes), "sha256": hashlib.sha256(raw).hexdigest(), **about,
        "sketches": [{"name": s.name, "knobs": [k.to_json() for k in s.knobs]} for s in space.sketches],
    }  # fmt: skip
    path = folder / f"{space.name}.json"
    path.write_text(json.dumps(header) + "\n", encoding="utf-8")
    return path


def _csv_bytes(space: RecordedSpace, outcomes: Sequence[Outcome], overhead_s: Sequence[float]) -> bytes:
    points = space.points()
    knobs = list(dict.fromkeys(k.name for s in space.sketches for k in s.knobs))
    text = io.StringIO()
    out = csv.DictWriter(text, ["sketch", *knobs, *_MEASURED], restval="", lineterminator="\n")
    out.writeheader()
    for point, o, overhead in zip(points.rows(), outcomes, overhead_s, strict=True):
        sketch = space.sketches[point[0]]
        row: dict[str, Any] = {"sketch": sketch.name}
        row |= {k.name: k.label(n) for k, n in zip(sketch.knobs, point[1:], strict=True)}
        row |= {"status": o.status, "seconds": _FLOAT % o.seconds if o.ok else "", "error": o.error}
        row |= {"build_s": _FLOAT % o.build_s, "check_s": _FLOAT % o.check_s, "run_s": _FLOAT % o.run_s}
        row |= {"overhead_s": _FLOAT % overhead, "times": " ".join(_FLOAT % t for t in o.times)}
        out.writerow(row)
    return lzma.compress(text.getvalue().encode(), preset=9)
