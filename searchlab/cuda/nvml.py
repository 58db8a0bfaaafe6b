"""The state of a GPU while it is measured, through NVML (package nvidia-ml-py), where that is installed."""

from __future__ import annotations

from functools import cache
from typing import Any


def gpu_state(bus_id: str) -> dict[str, str]:
    """Clocks and temperature for the notes of records; empty where NVML does not answer."""
    found = _nvml()
    if found is None:
        return {}
    try:
        handle = found.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
        core = found.nvmlDeviceGetClockInfo(handle, found.NVML_CLOCK_SM)
        memory = found.nvmlDeviceGetClockInfo(handle, found.NVML_CLOCK_MEM)
        degrees = found.nvmlDeviceGetTemperature(handle, found.NVML_TEMPERATURE_GPU)
    except found.NVMLError:  # not every device has all sensors
        return {}
    return {"clocks": f"{core} MHz, memory {memory} MHz", "temperature": f"{degrees} C"}


@cache
def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
