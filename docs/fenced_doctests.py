"""Lets mkdocstrings show docstrings' examples as code: `>>>` opens a quotation in Markdown."""

import re

import griffe

# From a prompt to the next empty line, which is what doctest takes for one example.
_EXAMPLE = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class FencedDoctests(griffe.Extension):
    """Puts each doctest of a docstring between fences."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rewrites the docstring of an object that was loaded."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(
                lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", obj.docstring.value
            )
