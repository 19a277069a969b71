"""`artangram bench`: the benchmarks, which are in the repository and not in the package."""

import typer

from artangram.core.errors import BadInput


def _benchmarks() -> typer.Typer:
    try:
        from artangram_bench import bench
    except ModuleNotFoundError as error:
        if error.name != "artangram_bench":
            raise
        return _elsewhere()
    return bench


def _elsewhere() -> typer.Typer:
    app = typer.Typer(help="Measure: needs a checkout of the repository.")

    @app.callback(invoke_without_command=True, context_settings={"ignore_unknown_options": True})
    def explain() -> None:
        raise BadInput(
            "bench",
            "the benchmarks are not part of the installed package",
            "clone the repository and run `pip install -e .` there",
        )

    return app


bench = _benchmarks()
