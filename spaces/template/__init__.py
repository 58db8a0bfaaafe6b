"""The space of templates: a schedule function with knobs spans the space, as in AutoTVM."""

from spaces.template.config import Config
from spaces.template.generator import TemplateSpace
from spaces.template.index import config_at, config_index
from spaces.template.registry import Template, template

__all__ = ["Config", "Template", "TemplateSpace", "config_at", "config_index", "template"]
