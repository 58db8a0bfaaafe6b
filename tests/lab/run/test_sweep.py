"""A full factorial sweep of spaces, models and strategies on this machine."""

from pathlib import Path

import pytest

from searchlab.lab.config import from_data
from searchlab.lab.run import load, run


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_by_three_by_three(tmp_path: Path) -> None:
    experiment = from_data(
        {
            "name": "all-with-all",
            "workloads": ["matmul:m=32,n=32,k=32", "softmax:rows=32,cols=64"],
            "target": {"native": {"threads": 1}},
            "sweep": {
                "space": ["template", "sketch", "probabilistic"],
                "model": ["none", "roofline", "gbt"],
                "strategy": ["random", "evolutionary", "annealing"],
            },
            "budget": {"trials": 4, "batch": 2},
            "measure": {"local": {"repeats": 3, "confirm": False}},
            "seeds": [0, 1, 2],
        }
    )
    summary = run(experiment, tmp_path / "run")
    assert summary.exit_code == 0 and summary.done == 3 * 3 * 3 * 2 * 3
    found = load(tmp_path / "run")
    assert not found.recorded and len(found.entries) == 27 and len(found.tasks) == 2
    for cell in found.cells:
        assert cell.state == "done" and len(cell.seconds) == 4 and cell.best is not None
