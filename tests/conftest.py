"""What all tests share: golden files, property tests that always try the same examples, the mark `cpu`."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

GOLDENS = Path(__file__).parent / "goldens"
# What compiles or measures for the machine that it runs on; `make test` runs it once more with the machine capped.
CPU = (
    "graph/test_compiled_operators.py",
    "intrinsics/",
    "lower/",
    "llvm/",
    "runtime/",
    "lab/export/test_kernels.py",
    "schedule/test_legality.py",
    "schedule/test_symbols.py",
    "spaces/common/",
    "spaces/probabilistic/test_rules.py",
    "spaces/task_mapping/",
    "spaces/template/",
    "tactics/",
    "test_backend.py",
    "test_bench.py",
    "test_defaults.py",
    "test_doctor.py",
    "test_targets.py",
)
sys.path.insert(0, str(Path(__file__).parent))  # `import random_schedules` from any test
os.environ.setdefault("SEARCHLAB_CUDA", "emulator")  # tests mean the same on machines with a GPU

settings.register_profile("searchlab", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("searchlab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(Path(__file__).parent).as_posix().startswith(CPU):
            item.add_marker(pytest.mark.cpu)


@pytest.fixture(autouse=True)
def forget_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules that a test wrote and imported end with it: the next one may write others of the same names."""
    before = set(sys.modules)
    yield
    made = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(made):
            del sys.modules[name]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares text with the golden file of a name, or writes the file."""

    def check(name: str, text: str) -> None:
        path = GOLDENS / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"there is no {path}; pytest --update-golden writes it"
        assert text == path.read_text(), f"not as in {path}; if this is meant, run pytest --update-golden"

    return check
