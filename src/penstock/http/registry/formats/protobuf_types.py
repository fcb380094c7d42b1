"""Which type a name in a .proto file means.

A name is looked for from the innermost message outwards, then in the packages around it; one with a leading dot is a
full name.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.http.registry.formats.protobuf_model import Enum, Message, ProtoFile
from penstock.http.registry.formats.schema import Reference

SCALARS = frozenset(
    (
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    )
)

# Stands for the file itself where others have the reference that brought them.
LOCAL = Reference("", "", -1)


class TypeInfo(NamedTuple):
    full_name: str
    package: str
    element: Message | Enum
    # Where it comes from: None for what a reference itself refers to.
    origin: Reference | None

    @property
    def local_name(self) -> str:
        return self.full_name.removeprefix(self.package + ".") if self.package else self.full_name


class Types:
    """All types that a file can name."""

    def __init__(
        self, file: ProtoFile, dependencies: Mapping[str, ProtoFile], references: Iterable[Reference] = ()
    ) -> None:
        self.package = file.package or ""
        self._by_name: dict[str, TypeInfo] = {}
        by_name = {reference.name: reference for reference in references}
        for name, dependency in dependencies.items():
            self._collect(dependency.package or "", (), dependency.types, by_name.get(name))
        self._collect(self.package, (), file.types, LOCAL)

    def _collect(
        self,
        package: str,
        scope: tuple[str, ...],
        types: Iterable[Message | Enum],
        origin: Reference | None,
    ) -> None:
        for element in types:
            path = (*scope, element.name)
            full_name = ".".join(((package,) if package else ()) + path)
            self._by_name[full_name] = TypeInfo(full_name, package, element, origin)
            if isinstance(element, Message):
                inner = [*element.types, *(group.body for group in element.groups)]
                self._collect(package, path, inner, origin)

    def find(self, name: str, scope: Iterable[str], package: str | None = None) -> TypeInfo | None:
        """What `name` means inside the messages of `scope`, outermost first."""
        if name.startswith("."):
            return self._by_name.get(name[1:])
        package = self.package if package is None else package
        prefix = [*(package.split(".") if package else []), *scope]
        while prefix:
            found = self._by_name.get(".".join((*prefix, name)))
            if found is not None:
                return found
            prefix.pop()
        return self._by_name.get(name)
