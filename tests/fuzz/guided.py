"""Fuzzing led by coverage, by hand: atheris looks for bytes that reach new code.

    uv pip install atheris
    python -m tests.fuzz.guided requests -max_total_time=600      (or batches; options are libFuzzer's)

What is found becomes a test beside the others.
"""

import logging
import sys
import tempfile
from pathlib import Path

import atheris


def main() -> None:
    name = sys.argv[1]
    logging.disable()
    # What is imported here for the first time is what coverage is counted of.
    with atheris.instrument_imports(include=["penstock"]):
        from tests.fuzz.guided_targets import TARGETS, corpus_of
    with tempfile.TemporaryDirectory(prefix="guided-") as directory:
        for number, data in enumerate(corpus_of(name)):
            (Path(directory) / str(number)).write_bytes(data)
            # Schemas are made at their first use, which takes longer than thousands of inputs.
            TARGETS[name](data)
        atheris.Setup([sys.argv[0], *sys.argv[2:], directory], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
