"""A griffe extension: the comment beside a field is its documentation, as kfjob's structs write it."""

from __future__ import annotations

from typing import Any

from griffe import Class, Docstring, Extension


class Comments(Extension):
    """Reads the comments. One that begins with `internal` leaves its field out of the page."""

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        """Make the comments docstrings."""
        for name, member in list(cls.members.items()):
            if not member.is_attribute or member.docstring or not member.endlineno:
                continue
            comment = cls.lines_collection[cls.filepath][member.endlineno - 1].partition("  # ")[2]
            if comment.startswith("internal"):
                del cls.members[name]
            elif comment:
                member.docstring = Docstring(comment[:1].upper() + comment[1:], parent=member)
