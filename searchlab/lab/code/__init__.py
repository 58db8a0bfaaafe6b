"""The code that cells run: user components, identified by their source, and searchlab's own, by their version."""

from searchlab.lab.code.outdated import Outdated, changed, outdated
from searchlab.lab.code.source_files import digest, files
from searchlab.lab.code.versions import Code, as_it_was, codes

__all__ = ["Code", "Outdated", "as_it_was", "changed", "codes", "digest", "files", "outdated"]
