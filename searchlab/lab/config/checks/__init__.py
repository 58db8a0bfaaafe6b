"""Whether settings can be used, checked before anything runs."""
