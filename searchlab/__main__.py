"""`python -m searchlab` is the command `searchlab`."""

from searchlab.cli import main

if __name__ == "__main__":
    main()
