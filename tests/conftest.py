"""What several test files share: text kept in golden files, and property tests that always try the same examples."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

GOLDENS = Path(__file__).parent / "goldens"
sys.path.insert(0, str(Path(__file__).parent))  # `import random_schedules` from any test

settings.register_profile("searchlab", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("searchlab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


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
