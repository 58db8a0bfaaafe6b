"""A screenshot of the top of a report, for the README.

    python tools/report_picture.py RUN [RUN...] [-o docs/report.png]

Needs Chromium or Chrome. The picture is refused if it is too large to be kept in the repository.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from searchlab.lab.report import Report
from searchlab.lab.run import load

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZE = (1200, 1360)
MOST = 200_000  # bytes


def browser() -> str:
    """The first browser that is installed."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        sys.exit(f"no browser: install one of {', '.join(NAMES)}")
    return found


def take(page: Path, picture: Path, folder: Path) -> None:
    """Takes a screenshot of the top of a page."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    places = [f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", page.as_uri()]
    size = f"--window-size={SIZE[0]},{SIZE[1]}"
    subprocess.run([browser(), *options, size, *places], check=True, capture_output=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/report.png"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page = Report.of([load(run) for run in given.runs]).write(folder / "report.html")
        take(page, folder / "report.png", folder)
        size = (folder / "report.png").stat().st_size
        if size > MOST:
            sys.exit(f"the picture has {size} bytes, more than {MOST}; fewer entries make it smaller")
        shutil.copy(folder / "report.png", given.output)
    print(f"{given.output}: {size} bytes")


if __name__ == "__main__":
    main()
