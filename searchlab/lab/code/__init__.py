"""The code that cells run: what of it is the user's, by its source, and what is searchlab's, by its version."""

from searchlab.lab.code.outdated import Outdated, changed, outdated
from searchlab.lab.code.source_files import digest, files
from searchlab.lab.code.versions import Code, codes

__all__ = ["Code", "Outdated", "changed", "codes", "digest", "files", "outdated"]
