"""Workers: processes that build, check and time candidates in isolation and survive their crashes."""
