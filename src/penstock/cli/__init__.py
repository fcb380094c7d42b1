"""The command line, in rpk's grammar, and the composition root: the only room that wires rooms together.

`program` declares the commands; each command has a module of its own. What can be pure is: format strings (`formats`,
`input_formats`), offset expressions (`offsets`), partitioners and the layout of tables (`printing`).
"""


def main() -> None:
    # Imported here because the node process imports this package too, and must not pay for typer.
    from penstock.cli.program import run

    run()
