"""The names of pycuda that searchlab uses, on a made-up GPU."""
