"""What all tests share: golden files, property tests that always try the same examples, locks of their own,
the mark `cpu`."""

import gc
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
# Except what names the machines that it tries, the narrower ones included, or asks for none.
NAMED = (
    "llvm/test_budget.py",
    "llvm/test_halves.py",
    "spaces/task_mapping/test_mapping.py",
    "tactics/test_tensorizing.py",
)
gc.set_threshold(100_000, 20, 100)  # collecting ten thousand tests makes no garbage, but millions of objects
sys.path.insert(0, str(Path(__file__).parent))  # `import random_schedules` from any test
os.environ.setdefault("SEARCHLAB_CUDA", "emulator")  # tests mean the same on machines with a GPU

settings.register_profile("searchlab", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("searchlab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def _for_this_machine(path: Path) -> bool:
    name = path.relative_to(Path(__file__).parent).as_posix()
    return name.startswith(CPU) and not name.startswith(NAMED)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests marked `cpu` are wanted, files without any are not even imported."""
    if collection_path.suffix != ".py" or not config.option.markexpr.startswith("cpu"):
        return None
    has_some = _for_this_machine(collection_path) or "pytest.mark.cpu" in collection_path.read_text()
    return None if has_some else True


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _for_this_machine(item.path) and "x86-64-v" not in item.name:  # a parameter that names a machine
            item.add_marker(pytest.mark.cpu)


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> None:
    """What is there before a file's tests, such as all tests and all modules, stays, and is not searched for garbage
    again and again: that took a fifth of the time, as races collect garbage before they begin."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forget_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules that a test wrote and imported end with it: the next one may write others of the same names."""
    before = set(sys.modules)
    yield
    made = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(made):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks on cores that nobody else knows, also for processes that are started here: times do not matter, and whoever
    measures keeps the real ones for longer than a test should wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


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
