"""All commands in one tree, and the one place where failures become exit codes."""

import os
import sys
from typing import NoReturn

import typer

from penstock.cli import (
    bench,
    cluster,
    config,
    consume,
    group,
    http,
    log_dump,
    node_command,
    produce,
    sql,
    top,
    topic,
    txn,
    up,
    version,
)
from penstock.cli.failures import EXIT_FAILED, Failed
from penstock.cli.printing import note

app = typer.Typer(
    name="penstock",
    help="A durable, partitioned commit log that speaks the Kafka protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("node")(node_command.node)
app.command("http")(http.http)
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.command("sql")(sql.sql)
cluster.app.add_typer(config.app, name="config")
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(log_dump.app, name="log")
app.add_typer(bench.app, name="bench")
app.command("top")(top.top)
app.command("version")(version.version)

EXIT_INTERRUPTED = 130


def run() -> NoReturn:
    try:
        app()
    except Failed as failure:
        note(f"penstock: {failure}")
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output left, as `head` does. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except Exception as error:
        if os.environ.get("PENSTOCK_TRACEBACK"):
            raise
        note(f"penstock: a defect in penstock itself: {error!r}. PENSTOCK_TRACEBACK=1 shows where.")
        sys.exit(EXIT_FAILED)
    sys.exit(0)
