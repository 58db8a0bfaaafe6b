"""`python -m searchlab` is the command `searchlab`."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # what -m puts first; `main` puts it last
    del sys.path[0]

from searchlab.cli import main

if __name__ == "__main__":
    main()
