"""Run folders that were damaged: every command that reads one works anyway, or names the damaged file."""

import copy
import errno
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.export.small_run import write
from typer.main import get_command

from searchlab.cli import app
from searchlab.lab.folder.folder import Folder
from searchlab.lab.run.runoff import runoff

COMMAND = get_command(app)  # once: making it takes longer than most commands
DEEP = 100_000
READERS: dict[str, tuple[str, ...]] = {
    "status": ("status", "FOLDER"),
    "status --json": ("status", "FOLDER", "--json"),
    "report": ("report", "FOLDER", "-o", "FOLDER/page.html"),
    "best": ("best", "FOLDER", "--top", "3"),
    "compare": ("compare", "FOLDER"),
    "leaderboard": ("leaderboard", "FOLDER"),
    "card": ("leaderboard", "FOLDER", "--card", "random"),
    "replay": ("replay", "FOLDER"),
    "stats": ("records", "stats", "RECORDS"),
    "export": ("records", "export", "RECORDS", "--to", "csv", "-o", "FOLDER/records.csv"),
    "dry run": ("run", "FOLDER", "--dry-run"),
    "run": ("run", "FOLDER", "-j", "0"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run folder with all the files that a run leaves."""
    with pytest.MonkeyPatch.context() as patch:
        path = write(tmp_path_factory.mktemp("damage") / "run", patch, target={"x86-64-v3": {"threads": 1}})
        (group,) = runoff.groups(Folder(path))
        seconds = dict.fromkeys(group.points, 2e-5)
        runoff.write(Folder(path), group, runoff.RunOff(group.task, seconds, group.points, {"numpy": 3e-5}))
        yield path  # what measures is patched as long as commands may measure


def call(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], folder: Path, records: Path) -> tuple[int, str]:
    """The exit code of a command and what it printed; whatever else it raises is a traceback for who calls it."""
    given = [w.replace("FOLDER", str(folder)).replace("RECORDS", str(records)) for w in words]
    with pytest.raises(SystemExit) as ended:
        COMMAND(given)
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err, f"{given}\n{printed.err}"
    return int(ended.value.code or 0), printed.out + printed.err


# --- damage -----------------------------------------------------------------------------------------------------------


def truncated(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(1, max(2, path.stat().st_size))])


def noise(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(8):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data))


def directory(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path, random.Random], object]] = {
    "truncated": truncated,
    "noise": noise,
    "binary": lambda path, rng: path.write_bytes(rng.randbytes(1000)),
    "empty": lambda path, rng: path.write_bytes(b""),
    "deep list": lambda path, rng: path.write_bytes(b"[" * DEEP),
    "deep object": lambda path, rng: path.write_bytes(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "list": lambda path, rng: path.write_bytes(b"[]\n"),
    "object": lambda path, rng: path.write_bytes(b"{}\n"),
    "number": lambda path, rng: path.write_bytes(b"3\n"),
    "null": lambda path, rng: path.write_bytes(b"null\n"),
    "missing": lambda path, rng: path.unlink(),
    "directory": directory,
}
JSON = ("manifest.json", "machine.json", "cells", "records", "runoffs")
FILES = (*JSON, "experiment.yaml", "source.yaml")


def chosen(folder: Path, name: str) -> Path:
    """A file of a folder by its name, or the first one in a folder of many."""
    path = folder / name
    return min(path.iterdir()) if path.is_dir() else path


def check(capsys: pytest.CaptureFixture[str], folder: Path, readers: list[str]) -> None:
    records = chosen(folder, "records")
    for reader in readers:
        code, printed = call(capsys, READERS[reader], folder, records)
        assert code in (0, 1, 2, 130), f"{reader}: exit code {code}"
        if code:
            assert any(w in printed for w in ("error:", "failed", "departs", "stopped")), f"{reader}:\n{printed}"


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_no_traceback(
    name: str, kind: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(f"{name} {kind}")
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    DAMAGE[kind](chosen(folder, name), rng)
    check(capsys, folder, rng.sample(list(READERS), 2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_no_traceback_of_any_command(
    name: str, kind: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    DAMAGE[kind](chosen(folder, name), random.Random(f"{name} {kind}"))
    check(capsys, folder, list(READERS))


# --- fields of a wrong type -------------------------------------------------------------------------------------------

WRONG: tuple[Any, ...] = (None, True, 3, -2.5, "text", "", [], [[1]], {}, {"a": 1})


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in plain data; of a list only its first item."""
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list) and data:
        yield from places(data[0], (*path, 0))


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place; without it where the value is `...`."""
    made = inner = copy.deepcopy(data)
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


def mutants(path: Path) -> Iterator[tuple[tuple[Any, ...], Any]]:
    data = json.loads(path.read_bytes().splitlines()[0])
    for place in places(data):
        for value in (..., *WRONG):
            yield place, value


def check_fields(capsys: pytest.CaptureFixture[str], whole: Path, scratch: Path, name: str, count: int) -> None:
    rng = random.Random(name)
    every = list(mutants(chosen(whole, name)))
    for number, (place, value) in enumerate(rng.sample(every, min(count, len(every)))):
        folder = Path(shutil.copytree(whole, scratch / str(number)))
        path = chosen(folder, name)
        first, *rest = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(json.dumps(replaced(json.loads(first), place, value)).encode() + b"\n" + b"".join(rest))
        try:
            check(capsys, folder, rng.sample(list(READERS), 2))
        except Exception as e:
            raise AssertionError(f"{name} {place} = {value!r}: {type(e).__name__}: {e}") from e
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", JSON)
def test_a_field_of_a_wrong_type_is_no_traceback(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_fields(capsys, whole, tmp_path, name, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", JSON)
def test_fields_of_wrong_types_are_no_tracebacks(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_fields(capsys, whole, tmp_path, name, 250)


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reader", "code", "remedy"),
    [
        ("manifest.json", "status", 2, "put back a copy"),
        ("experiment.yaml", "report", 2, "delete it, and `searchlab run EXPERIMENT.yaml -o"),
        ("machine.json", "leaderboard", 2, "delete it if that was this one"),
        ("source.yaml", "report", 0, "delete it, and `searchlab run EXPERIMENT.yaml -o"),
        ("cells", "status", 0, "runs the cell again from its records"),
        ("runoffs", "best", 0, "repeats the run-off"),
    ],
)
def test_the_message_has_the_file_and_what_to_do(
    name: str, reader: str, code: int, remedy: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    path = chosen(folder, name)
    path.write_bytes(b'{"a": [\xff')
    found, printed = call(capsys, READERS[reader], folder, path)
    said = [line for line in printed.splitlines() if line.startswith("error: " if code else "warning: ")]
    assert found == code and len(said) == 1, printed  # once, however often the file is read
    assert str(path) in said[0] and remedy in said[0]


@pytest.mark.parametrize("reader", ["report", "best", "replay", "stats", "export", "run"])
def test_every_command_that_reads_records_counts_what_it_leaves_out(
    reader: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    path = chosen(folder, "records")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:40] + b"\n"
    lines[5] = b"[" * DEEP + b"\n"
    lines[6] = lines[6].replace(b'"status":"', b'"status":7,"was":"')
    path.write_bytes(b"".join(lines))
    if reader == "run":  # a cell that is done is not read again
        (folder / "cells" / f"{path.stem}.json").unlink()
    _, printed = call(capsys, READERS[reader], folder, path)
    said = [line for line in printed.splitlines() if "left out" in line]
    assert len(said) == 1 and said[0].startswith("warning: "), printed
    assert reader != "run" or printed.index(said[0]) < printed.index("2 cells, 1 of")  # workers' words go to the log
    assert f"{path}: 3 lines cannot be read and are left out, the first is line 3" in said[0]


@pytest.mark.parametrize("place", ["file", "file/inside", "/proc/run", "/sys/run", "/dev/null"])
def test_a_folder_that_cannot_be_written_is_told(
    place: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("something")
    output = str(tmp_path / place)
    words = ("run", str(whole / "source.yaml"), "-o", output, "-j", "0")
    code, printed = call(capsys, words, whole, whole)
    assert code == 2 and printed.startswith(f"error: {output} ") and "with -o" in printed, printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize("kind", ["ENOSPC", "EROFS", "EACCES"])
def test_a_disk_that_takes_nothing_is_told(
    kind: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, real = getattr(errno, kind), Path.open

    def refuse(self: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if "w" in mode:
            raise OSError(number, os.strerror(number), str(self))
        return real(self, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", refuse)
    words = ("run", str(whole / "source.yaml"), "-o", str(tmp_path / "new"), "-j", "0")
    code, printed = call(capsys, words, whole, whole)
    assert code == 2 and os.strerror(number) in printed and str(tmp_path / "new") in printed, printed
    assert "free some disk space" in printed if kind == "ENOSPC" else "another path" in printed
