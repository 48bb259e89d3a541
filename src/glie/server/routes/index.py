"""The routes of the index: facts, health, counters and measurements."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fastapi import FastAPI, Response

import glie
from glie.server import schemas
from glie.server.library import Library
from glie.server.limits import Limits
from glie.server.metrics import Metrics
from glie.server.problems import problems
from glie.server.survey import Survey, Surveyor


def add_index(
    app: FastAPI, library: Library, metrics: Metrics, limits: Limits, read_only: bool
) -> None:
    """GET /info, /health and /metrics."""

    @app.get("/info", tags=["index"], responses=problems())
    def info() -> schemas.Info:
        """Counts and sizes of the index."""
        index = library.index
        measured = index.info()
        facts = measured.to_dict()
        known = {name: value for name, value in facts.items() if name in schemas.Info.model_fields}
        return schemas.Info(
            **known
            | {
                "name": library.path.name,
                "version": glie.__version__,
                "documents": len(library.documents()),
                "encoder": Path(facts["encoder"]).name if facts["encoder"] else None,
                "encoder_state": library.encoder_state,
                "bytes": measured.index_bytes,
                "bytes_per_page": measured.bytes_per_page,
                "compression": measured.compression,
                "read_only": read_only,
                "limits": dataclasses.asdict(limits),
            }
        )

    @app.get("/health", tags=["index"], responses=problems())
    def health() -> schemas.Health:
        """Whether the server answers. Needs no token."""
        state = library.encoder_state
        known = state in ("none", "loading", "ready")
        return schemas.Health(status="ok", encoder=state if known else "failed")  # type: ignore[arg-type]

    @app.get(
        "/metrics",
        tags=["index"],
        response_class=Response,
        responses={**problems(), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def prometheus() -> Response:
        """Counters in Prometheus' text format."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def add_measurements(app: FastAPI, library: Library, surveyor: Surveyor) -> None:
    """GET and POST /survey."""

    def shown(survey: Survey) -> schemas.Survey:
        shape = None
        if survey.geometry is not None:
            facts = survey.geometry.to_dict()
            each = [
                {key: page[key] for key in schemas.PageShape.model_fields} for page in facts["each"]
            ]
            known = {key: facts[key] for key in schemas.Shape.model_fields}
            shape = schemas.Shape(**known | {"each": each})
        return schemas.Survey(
            state=survey.state,
            doing=survey.doing,
            share=survey.share,
            seconds=survey.seconds,
            stale=survey.state == "done" and survey.generation != library.index.generation,
            sampled=survey.sampled,
            budgets=[schemas.Budget(**row.to_dict()) for row in survey.budgets],
            current=schemas.Budget(**survey.current.to_dict()) if survey.current else None,
            geometry=shape,
        )

    @app.get("/survey", tags=["measurements"], responses=problems())
    def survey() -> schemas.Survey:
        """Measurements of this corpus: quality by budget, and geometry."""
        return shown(surveyor.survey)

    @app.post("/survey", tags=["measurements"], status_code=202, responses=problems())
    def measure() -> schemas.Survey:
        """Start measuring, unless it is under way or done; GET returns the progress."""
        return shown(surveyor.start())
