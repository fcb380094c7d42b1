"""Hypothesis strategies for kio's messages, which are the reference for our own codecs."""

from typing import Any

from hypothesis import strategies as st
from kio.static.primitive import Records

st.register_type_strategy(Records, st.binary(max_size=200).map(Records))


def messages(entity: type) -> st.SearchStrategy[Any]:
    return st.from_type(entity)
