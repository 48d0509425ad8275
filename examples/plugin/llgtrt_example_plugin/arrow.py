"""A call format: what a model that was trained on ``=> name {...} <=`` writes.

The grammar of answers and the parser of calls both follow from these texts.
"""

from llgtrt.tools import ToolFormat

ARROW = ToolFormat(
    name="arrow",
    # The first format whose mark is in the chat template is used; those of packages are asked first.
    detects=lambda template: "=> name {...} <=" in template,
    trigger="=> ",
    head="=> {name} ",
    tail=" <=",
    separator="\n",
)
