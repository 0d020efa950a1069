"""`walld serve`: the daemon.

Owns: settings and log lines, read and set up before anything else is imported. Refuses: the rest.
"""

from __future__ import annotations

import argparse
import os

from walld.cli.arguments import SETTINGS
from walld.daemon.ops import logs
from walld.daemon.settings import Settings, load

__all__ = ["run", "settings_of"]


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings that these flags, the environment and a config file make."""
    flags = {key: getattr(options, key) for key in (*SETTINGS, "config")}
    return load(flags, os.environ, os.geteuid())


def run(options: argparse.Namespace) -> int:
    """Serves until SIGTERM, or until nobody uses it."""
    settings = settings_of(options)
    logs.configure(settings.log_format, os.environ)
    from walld.daemon.service import serve

    return serve(settings, options.until_unused)
