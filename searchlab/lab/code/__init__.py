"""The code that cells run: user components, identified by their source, and searchlab's own, by their version."""

from searchlab.lab.code.outdated import Outdated, changed, outdated
from searchlab.lab.code.source_files import digest, files
from searchlab.lab.code.versions import Code, codes, model_as_it_was

__all__ = ["Code", "Outdated", "changed", "codes", "digest", "files", "model_as_it_was", "outdated"]
