"""The back end for NVIDIA GPUs: kernels of threads, PTX text, and an emulator that runs it where there is no GPU."""
