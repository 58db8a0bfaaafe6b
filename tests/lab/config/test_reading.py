"""From text to trees: what words mean, and where things were written."""

from pathlib import Path

import pytest

from searchlab.errors import ConfigError
from searchlab.lab.config import load
from searchlab.lab.config.text.reading import read
from searchlab.lab.config.text.scalars import Trap, meaning
from searchlab.lab.config.text.tree import Map, Place, PlacedList, find, placed, unplaced


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1e-3", 0.001), ("1E3", 1000.0), (".5", 0.5), ("-2.", -2.0), ("+7", 7), ("0", 0), ("0x10", 16),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("matmul", "matmul"),
        ("2026-01-31", "2026-01-31"), ("0..9", "0..9"), ("1.2.3", "1.2.3"), ("n", "n"), ("y", "y"),
        ("matmul:m=64,n=32", "matmul:m=64,n=32"), ("e3", "e3"), ("=", "="),
    ],
)  # fmt: skip
def test_what_words_mean(word: str, value: object) -> None:
    found = meaning(word)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "word", ["yes", "No", "ON", "off", "010", "0o17", "0b1", "1_0", "1:30", ".nan", "-.inf", "1e400"]
)
def test_words_that_are_refused(word: str) -> None:
    with pytest.raises(Trap):
        meaning(word)


def test_words_in_quotes_are_text() -> None:
    assert read("a: 'yes'\nb: \"010\"\n'on': '.nan'\n", "f") == {"a": "yes", "b": "010", "on": ".nan"}


def test_on_is_a_word_where_a_key_is_expected() -> None:
    assert read("on: 1\n", "f") == {"on": 1}


def test_every_value_has_its_line() -> None:
    tree = read("a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\ne:\n  4\n", "f.yaml")
    lines = {path: find(tree, path, tree.place).line for path in [("a",), ("b", 0), ("b", 1, "d"), ("e",), ("b",)]}
    assert lines == {("a",): 1, ("b", 0): 3, ("b", 1, "d"): 5, ("e",): 7, ("b",): 2}
    assert find(tree, ("b", 1, "nothing", 3), tree.place) == Place("f.yaml", 4)
    assert find(tree, (), tree.place) == Place("f.yaml", 1)


def test_places_survive_a_copy() -> None:
    tree = read("a: [1, {b: 2}]\n\nc: 3\n", "f")
    copy = placed(tree, Place("other"))
    assert unplaced(copy) == {"a": [1, {"b": 2}], "c": 3}
    assert isinstance(copy, Map) and isinstance(copy["a"], PlacedList) and copy.at("c").line == 3
    copy["a"][1].put("b", 5, Place("other", 9))
    assert tree["a"][1]["b"] == 2


def test_anchors_and_merge_keys() -> None:
    tree = read("base: &b {trials: 8, batch: 4}\nbudget: {<<: *b, batch: 2}\nmore: {<<: [{a: 1}, {a: 2, c: 3}]}\n", "f")
    assert tree["budget"] == {"trials": 8, "batch": 2}
    assert tree["more"] == {"a": 1, "c": 3}


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbfworkloads: [{table: matmul-256}]\r\nseeds: 3\r\n")
    assert load(tmp_path / "x.yaml").seeds == (3,)


def test_included_files_lie_below(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.yaml").write_text("strategy: local\nbudget: {trials: 9, batch: 3}\n")
    (tmp_path / "base.yaml").write_text("include: sub/deep.yaml\nbudget: {trials: 7}\nseeds: 5\n")
    (tmp_path / "other.yaml").write_text("seeds: 6\n")
    (tmp_path / "top.yaml").write_text("include: [base.yaml, other.yaml]\nworkloads: {table: matmul-256}\n")
    found = load(tmp_path / "top.yaml")
    assert (found.strategy, found.budget.trials, found.budget.batch, found.seeds) == ("local", 7, 3, (6,))
    assert found.name == "top"


def test_the_same_file_may_be_included_twice(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("seeds: 5\n")
    (tmp_path / "top.yaml").write_text("include: [a.yaml, a.yaml]\nworkloads: {table: matmul-256}\n")
    assert load(tmp_path / "top.yaml").seeds == (5,)


def test_an_unreadable_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.yaml").write_text("a: b\n")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load(tmp_path / "x.yaml")
