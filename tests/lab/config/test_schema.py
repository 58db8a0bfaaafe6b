"""The schema and the reference page: made from the models, and what they show is accepted."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from searchlab.cli import app
from searchlab.lab.config import load
from searchlab.lab.config.experiment import Source
from searchlab.lab.config.forms.reference import page
from searchlab.lab.config.forms.schema import schema
from searchlab.lab.config.text.reading import read
from searchlab.lab.config.text.tree import unplaced

DOCS = Path(__file__).parents[3] / "docs" / "yaml.md"
SCHEMA = schema()
SNIPPETS = re.findall(r"^```yaml\n(.*?)^```", page(), re.MULTILINE | re.DOTALL)


def test_the_page_is_up_to_date() -> None:
    assert DOCS.read_text() == page().rstrip("\n") + "\n", (
        "make it again: searchlab schema --markdown --out docs/yaml.md"
    )


@pytest.mark.parametrize("text", SNIPPETS, ids=lambda t: t.split("\n")[0][:30])
def test_examples_of_the_page_are_accepted(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert load(tmp_path / "x.yaml").workloads


@pytest.mark.parametrize("text", SNIPPETS, ids=lambda t: t.split("\n")[0][:30])
def test_examples_and_what_they_become_fit_the_schema(text: str, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    (tmp_path / "x.yaml").write_text(text)
    check = jsonschema.Draft7Validator(SCHEMA)
    assert not list(check.iter_errors(unplaced(read(text, "x.yaml"))))
    assert not list(check.iter_errors(load(tmp_path / "x.yaml").resolved()))


@pytest.mark.parametrize(
    "data",
    [
        {"stratgy": "random"}, {"strategy": "evolve"}, {"strategy": {"evolutionary": {"poplation": 3}}}, {"seeds": []},
        {"budget": {"trials": 0}}, {"measure": {"local": {"repeat": 3}}}, {"effort": "ful"},
        {"sweep": {"space": "sketch"}},
    ],
)  # fmt: skip
def test_mistakes_do_not_fit_the_schema(data: dict[str, object]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(data))


def test_the_schema_asks_for_what_it_asked(golden: Callable[[str, str], None]) -> None:
    """Keys, types and defaults of what comes with searchlab; names of classes and sentences are not part of it."""
    golden("schema.json", json.dumps(shape(SCHEMA), indent=1) + "\n")


def shape(part: Any, names: bool = False) -> Any:
    """A schema with its references resolved, without titles and descriptions; below `properties` keys are names."""
    if isinstance(part, list):
        return [shape(p) for p in part]
    if not isinstance(part, dict):
        return part
    if not names and (reference := part.get("$ref")):
        part = {**SCHEMA["definitions"][reference.removeprefix("#/definitions/")], **part}
    left_out = () if names else ("$ref", "title", "description", "definitions")
    return {k: v if k == "default" else shape(v, k == "properties") for k, v in part.items() if k not in left_out}


def test_there_are_examples() -> None:
    assert len(SNIPPETS) >= 7


def test_every_key_is_described() -> None:
    found = SCHEMA
    assert found["properties"].keys() == Source.model_fields.keys()
    assert all(p.get("description") for p in found["properties"].values())
    for name, part in found["definitions"].items():
        assert all(p.get("description") for p in part["properties"].values()), name


def test_components_are_known_with_their_options() -> None:
    names, _, options, _ = SCHEMA["properties"]["strategy"]["anyOf"]
    assert {"random", "evolutionary"} <= set(names["enum"])
    assert options["properties"]["evolutionary"]["properties"]["generations"] == {"default": 4}


def test_the_command(tmp_path: Path) -> None:
    runner, now = CliRunner(), schema()  # other tests may have added components since this file was read
    assert json.loads(runner.invoke(app, ["schema"]).output) == now
    done = runner.invoke(app, ["schema", "--out", str(tmp_path / "deep" / "s.json")])
    assert done.exit_code == 0 and "yaml-language-server" in done.output
    assert json.loads((tmp_path / "deep" / "s.json").read_text()) == now
    assert runner.invoke(app, ["schema", "--out", str(tmp_path)]).exit_code == 2
    assert runner.invoke(app, ["schema", "--markdown"]).output.startswith("# Experiments in YAML")
