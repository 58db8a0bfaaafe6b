"""Code that changes after cells have run: what counts as a change, how it is refused, and what is said afterwards."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab.made import bare_cell
from lab.run.runs import content
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.errors import ConfigError
from searchlab.intrinsics import known
from searchlab.lab.cells import cells
from searchlab.lab.code import changed, codes, digest, files
from searchlab.lab.config import from_data
from searchlab.lab.folder.atomic import replace_json
from searchlab.lab.results import CellResult
from searchlab.lab.run import Folder, load, run
from searchlab.lab.statistics import notes
from searchlab.search import MODELS, STRATEGIES
from searchlab.strategies import Random

STRATEGY = """
from searchlab.strategies import Random
import {prefix}_helper

class Nearby(Random):
    name = "nearby"

    def ask(self, count, score=None):
        return self.draw({prefix}_helper.LIMIT and count)
"""


class Module:
    """A strategy of the user in a folder of its own; edits count from the next command on."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder, self.prefix = folder, prefix
        self.component = f"{prefix}_mine:Nearby"
        self.write("mine", STRATEGY.format(prefix=prefix))
        self.write("helper", "LIMIT = 1\n")
        self.write("other", "from searchlab.strategies import Grid\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{self.prefix}_{name}.py").write_text(text)

    def edit(self, name: str) -> None:
        file = self.folder / f"{self.prefix}_{name}.py"
        file.write_text(file.read_text() + f"# edited {len(file.read_text())}\n")

    def experiment(self, **changes: Any) -> dict[str, Any]:
        plain = {
            "name": "drifting", "workloads": [{"table": "softmax-128x1024"}], "seeds": [0],
            "sweep": {"strategy": [self.component, "random"]}, "budget": {"trials": 8, "batch": 4},
        }  # fmt: skip
        return {**plain, **changes}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    prefix = f"m{abs(hash(tmp_path)):x}"
    yield Module(tmp_path, prefix)
    for name in [n for n in sys.modules if n.startswith(prefix)]:
        del sys.modules[name]


Go = Callable[..., Any]


@pytest.fixture
def go(mine: Module) -> Go:
    """Runs the experiment in the folder `run`, with changes of it and options."""

    def going(changes: dict[str, Any] | None = None, **options: Any) -> Any:
        return run(from_data(mine.experiment(**(changes or {}))), "run", jobs=0, **options)

    return going


def call(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


# --- what counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("edited", "drifts"), [("mine", True), ("helper", True), ("other", False)])
def test_edits_of_a_module_and_of_what_it_imports_count(mine: Module, go: Go, edited: str, drifts: bool) -> None:
    assert go().done == 2
    mine.edit(edited)
    if drifts:
        with pytest.raises(ConfigError, match=rf"strategy {mine.component} \(Nearby on softmax-128x1024, seed 0\)"):
            go()
    else:
        assert go().before == 2


def test_files_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "pack/__init__.py": "",
        "pack/deep/__init__.py": "from . import beside",
        "pack/deep/one.py": "import numpy\nfrom ..shared import tool\ndef late():\n    import pack.late as l",
        "pack/deep/beside.py": "import importlib, os.path",
        "pack/deep/unrelated.py": "",
        "pack/shared/tool.py": "from searchlab.strategies import Random\nfrom spaces.sketch import SketchSpace",
        "pack/late.py": "syntax error(",
        "spaces/sketch.py": "",
        "loose.py": "import pack.deep.one",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    inside = {"pack", "pack.deep", "pack.deep.one", "pack.deep.beside", "pack.shared.tool", "pack.late"}
    assert files("pack.deep.one").keys() == inside
    assert files("loose").keys() == {"loose", *inside}
    assert digest("no_such_module") is None
    before = digest("loose")
    (tmp_path / "pack" / "deep" / "unrelated.py").write_text("X = 1")
    assert digest("loose") == before
    (tmp_path / "pack" / "late.py").write_text("X = 1")
    assert digest("loose") != before


def test_what_is_installed_beside_a_package_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "plug_in_alone.py").write_text("import library_beside")
    (site / "library_beside.py").write_text("")
    monkeypatch.syspath_prepend(str(site))
    assert files("plug_in_alone").keys() == {"plug_in_alone"}


def test_components_of_all_kinds_count(mine: Module) -> None:
    mine.write("work", "from searchlab.workloads.linear import matmul as mine\n")
    work, rule = f"{mine.prefix}_work:mine", f"{mine.prefix}_other:rule"
    config = {
        "workload": f"{work}:m=8",
        "space": {"sketch": {"more_rules": [rule]}},
        "model": {"ensemble": {"of": {"gbt": {"rounds": 3}}}},
        "strategy": {"bandit": {"members": ["random", {mine.component: {}}]}},
    }
    network = {"network": "n", "parts": [{"task": "a", "workload": "matmul:m=8"}, {"task": "b", "workload": work}]}
    (found, of_network) = codes([config, network])
    assert found.keys() == {
        f"workload {work}", "space sketch", f"space {rule}", "model ensemble", "model gbt", "strategy bandit",
        "strategy random", f"strategy {mine.component}",
    }  # fmt: skip
    assert found["model gbt"] == "version 2" and found[f"strategy {mine.component}"] == digest(f"{mine.prefix}_mine")
    assert of_network == {f"workload {work}": found[f"workload {work}"]}


INTRINSIC = """
from searchlab.intrinsics import find_intrinsic
from dataclasses import replace
import {prefix}_helper

MINE = replace(find_intrinsic("avx2_u8s8_8x4"), name="mine_8x4")
"""


def test_intrinsics_of_packages_count_where_programs_are_built(mine: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    module = f"{mine.prefix}_intrinsic"
    mine.write("intrinsic", INTRINSIC.format(prefix=mine.prefix))
    values = {"mine": f"{module}:MINE", "ours": "searchlab.intrinsics.arm_dots:INTRINSICS", "gone": "no_such_module:X"}
    points = tuple(EntryPoint(name, value, known.GROUP) for name, value in values.items())
    monkeypatch.setattr(known, "_points", lambda: points)
    network = {"network": "n", "parts": [{"task": "a", "workload": "matmul:m=8"}]}
    configs = [{"workload": "matmul:m=8", "strategy": "random"}, network, {"table": "t", "strategy": "random"}]
    before = codes(configs)
    for code in before[:2]:
        assert {name for name in code if name.startswith("intrinsics")} == {"intrinsics mine"}
    assert before[0]["intrinsics mine"] == digest(module) and before[2] == {
        "strategy random": before[0]["strategy random"]
    }
    mine.edit("other")
    assert codes(configs) == before
    mine.edit("helper")  # which the intrinsic imports
    assert [changed(a, b) for a, b in zip(before, codes(configs))] == [("intrinsics mine",), ("intrinsics mine",), ()]
    assert module not in sys.modules  # sources are read, not run


def test_an_intrinsic_that_options_name_counts(mine: Module) -> None:
    mine.write("intrinsic", INTRINSIC.format(prefix=mine.prefix))
    path = f"{mine.prefix}_intrinsic:MINE"
    (found,) = codes([{"workload": "matmul:m=8", "space": {"template": {"intrinsics": path}}}])
    assert found[f"space {path}"] == digest(f"{mine.prefix}_intrinsic")


def test_a_component_that_was_added_here_counts_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STRATEGIES, "_added", {"added": type("Added", (Random,), {"__module__": __name__})})
    assert codes([{"strategy": "added"}]) == [{"strategy added": digest(__name__)}]


def test_ids_do_not_depend_on_code(mine: Module) -> None:
    before = [c.id for c in cells(from_data(mine.experiment()))]
    mine.edit("mine")
    assert [c.id for c in cells(from_data(mine.experiment()))] == before


# --- what happens -----------------------------------------------------------------------------------------------------


def test_fresh_runs_exactly_those_cells_again(mine: Module, go: Go) -> None:
    go()
    before = content(Path("run"))
    times = {f: f.stat().st_mtime_ns for f in Path("run").rglob("*/*.json*")}
    mine.edit("helper")
    summary = go(fresh=True)
    assert (summary.before, summary.done) == (1, 1)
    own, other = cells(from_data(mine.experiment()))
    for part in ("cells", "records"):
        (moved,) = Path("run/earlier/1", part).iterdir()
        assert moved.stem == own.id
    (kept,) = Path("run/earlier/1/records").iterdir()
    assert kept.read_bytes() == before[own.id][0]
    assert all(f.stat().st_mtime_ns == t for f, t in times.items() if f.stem == other.id)
    assert go().before == 2 and not notes_of("run")
    mine.edit("helper")
    go(fresh=True)
    assert sorted(p.name for p in Path("run/earlier").iterdir()) == ["1", "2"]


def test_fresh_without_a_change_starts_everything_anew(mine: Module, go: Go) -> None:
    go()
    assert go(fresh=True).done == 2 and Path("run.old-1").is_dir()
    mine.edit("mine")
    assert go({"seeds": [0, 1]}, fresh=True).done == 4 and Path("run.old-2").is_dir()


def test_what_is_allowed_is_said_everywhere(mine: Module, go: Go) -> None:
    go()
    mine.edit("mine")
    assert go(allow_drift=True).before == 2
    said = f"results of 1 cell come from an earlier version of strategy {mine.component}"
    assert said in notes_of("run")
    for words in (
        ["leaderboard", "run"],
        ["leaderboard", "run", "--card", "Nearby"],
        ["compare", "run", "--by", "strategy"],
        ["run", "run", "-j", "0"],
        ["best", "run"],
    ):
        done = call(*words)
        assert done.exit_code == 0 and said in " ".join(done.output.split()), (words, done.output)
    assert call("report", "run", "-o", "page.html").exit_code == 0
    assert said[1:] in Path("page.html").read_text()  # where it begins with a capital
    assert f"changed since: strategy {mine.component}" in call("status", "run").output
    assert go().before == 2  # what was allowed once is not refused again
    mine.edit("mine")
    with pytest.raises(ConfigError, match="code that has changed"):
        go()
    assert go(fresh=True).done == 1 and not notes_of("run")


def test_more_seeds_after_an_edit(mine: Module, go: Go) -> None:
    go()
    mine.edit("helper")
    more = {"seeds": [0, 1]}
    with pytest.raises(ConfigError, match=rf"2 cells new.* also has results of code .*{mine.component}.*--allow-drift"):
        go(more)
    assert go(more, allow_drift=True).done == 2
    assert f"results of 1 cell come from an earlier version of strategy {mine.component}" in notes_of("run")
    mine.edit("helper")  # now both of them are of earlier code
    assert go(more, fresh=True).done == 2 and not notes_of("run")


def test_a_new_version_of_a_component_that_is_shipped(mine: Module, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    go()
    monkeypatch.setattr(Random, "version", "99")
    with pytest.raises(ConfigError, match=r"strategy random \(random on"):
        go()
    assert go(fresh=True).done == 1
    monkeypatch.setattr(MODELS.find("none"), "version", "99")
    with pytest.raises(ConfigError, match=r"model none \(2 cells, such as Nearby on"):
        go()


def test_cells_that_have_not_begun_or_start_over_take_the_code_of_today(mine: Module, go: Go) -> None:
    go()
    folder = Folder(Path("run"))
    own, _ = cells(from_data(mine.experiment()))
    result = json.loads((folder.path / "cells" / f"{own.id}.json").read_text())
    replace_json(folder.path / "cells" / f"{own.id}.json", {**result, "state": "failed", "error": "a mistake"})
    mine.edit("mine")  # which mends it
    assert go().done == 1 and not notes_of("run")


def test_a_task_that_has_measurements_keeps_its_code(mine: Module) -> None:
    """Its records would be mixed with those of other code, so it counts as soon as there is one."""
    work = {"workloads": ["matmul:m=8,n=8,k=8"], "space": "template", "model": "none", "sweep": {}}
    experiment = from_data(mine.experiment(**work, strategy=mine.component))
    (cell,) = cells(experiment)
    folder = Folder(Path("run"))
    from searchlab.lab.run.execute.prepare import code_drift, prepare

    prepare(folder, experiment, [cell], "", "", False)
    mine.edit("mine")
    prepare(folder, experiment, [cell], "", "", False)  # nothing has been measured
    assert not code_drift(folder, [cell])
    folder.records_path(cell.id).parent.mkdir()
    folder.records_path(cell.id).write_text("{}\n")
    mine.edit("mine")
    with pytest.raises(ConfigError, match="--fresh runs these cells again"):
        prepare(folder, experiment, [cell], "", "", False)


def test_folders_without_code_are_read_and_go_on(mine: Module, go: Go) -> None:
    go()
    manifest = json.loads(Path("run/manifest.json").read_text())
    del manifest["code"]
    for row in manifest["cells"]:
        del row["code"]
    replace_json(Path("run/manifest.json"), manifest)
    mine.edit("mine")
    assert not notes_of("run") and call("status", "run").exit_code == 0
    assert go({"seeds": [0, 1]}, allow_drift=True).done == 2 and not notes_of("run")
    mine.edit("mine")
    with pytest.raises(ConfigError, match="Nearby on softmax-128x1024, seed 1"):
        go({"seeds": [0, 1]})


# --- how it is said ---------------------------------------------------------------------------------------------------


def test_commands(mine: Module, go: Go) -> None:
    Path("drifting.yaml").write_text(json.dumps(mine.experiment()))
    assert call("run", "drifting.yaml", "-j", "0", "-q").exit_code == 0
    mine.edit("mine")
    done = call("run", "drifting.yaml", "-j", "0")
    assert done.exit_code == 2 and "--fresh" in done.output and "--allow-drift" in done.output
    assert "all of them earlier" not in done.output
    planned = call("run", "drifting.yaml", "--dry-run")
    assert planned.exit_code == 0 and f"changed since: strategy {mine.component}" in planned.output
    assert json.loads(call("run", "drifting.yaml", "--dry-run", "--json").output)["changed"]
    assert json.loads(call("status", "runs/drifting", "--json").output)["earlier"]
    again = call("run", "drifting.yaml", "-j", "0", "--fresh")
    assert again.exit_code == 0 and "run again: strategy" in again.output and "runs/drifting/earlier/1" in again.output
    assert not json.loads(call("status", "runs/drifting", "--json").output)["earlier"]


def notes_of(path: str) -> list[str]:
    return [n for n in notes(load(path).cells) if "version" in n]


def test_runs_of_several_versions_that_are_compared() -> None:
    def cell(seed: int, version: str) -> CellResult:
        one = np.ones(1)
        return CellResult(bare_cell("a", "t", seed, code={"strategy x": version}), "done", one, one, ("ok",))

    assert "results come from 2 versions of strategy x" in notes([cell(0, "1"), cell(1, "2")])
    assert not any("version" in n for n in notes([cell(0, "1"), cell(1, "1")]))
