"""The names of NVML that searchlab uses, on a made-up GPU."""

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0


class NVMLError(Exception):
    pass


def nvmlInit() -> None:
    pass


def nvmlDeviceGetHandleByPciBusId(pciBusId: bytes) -> bytes:
    if pciBusId != b"0000:01:00.0":
        raise NVMLError("not found")
    return pciBusId


def nvmlDeviceGetClockInfo(handle: bytes, type: int) -> int:
    return {NVML_CLOCK_SM: 1410, NVML_CLOCK_MEM: 1215}[type]


def nvmlDeviceGetTemperature(handle: bytes, sensor: int) -> int:
    return 56
