"""Structured logs: a fixed phrase with facts as fields, one line per transition."""

import logging
import sys

import structlog

from harebell.runtime.settings import ServiceSettings


def configure_logging(settings: ServiceSettings, service: str) -> None:
    """Write logs to stderr, in the format and at the level of the settings."""
    renderer = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.log_level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    structlog.contextvars.bind_contextvars(service=service, name=settings.instance_id)
    # Services log each lost connection themselves, so the logs of these libraries are duplicates.
    for library in ("aio_pika", "aiormq", "asyncio", "asyncpg", "aiohttp.access"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
