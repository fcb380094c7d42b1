"""penstock version."""

from penstock.cli.options import OutputOption
from penstock.cli.printing import Output, print_json, say


def version(output: OutputOption = Output.TEXT) -> None:
    """Print the versions of Penstock and of what it runs on."""
    import platform
    from importlib.metadata import version as package_version

    from confluent_kafka import libversion

    versions = {
        "penstock": package_version("penstock"),
        "python": platform.python_version(),
        "librdkafka": libversion()[0],
        "kio": package_version("kio"),
    }
    if output is Output.JSON:
        print_json(versions)
    else:
        rest = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "penstock")
        say(f"penstock {versions['penstock']} ({rest})")
