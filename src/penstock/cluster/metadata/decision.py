"""What a decision is: records to append, and the answer that may leave once they are committed."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.cluster.metadata.records import MetadataRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    answer: T
    records: list[MetadataRecord] = field(default_factory=list)
