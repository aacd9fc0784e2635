"""A page for many visitors: a server with limits, warm kernels, metrics and a health check.

The plug-in is this file's `PLUGIN`; the server itself begins in `start`."""

from __future__ import annotations

from explorer.plugins import Plugin

PLUGIN = Plugin(commands="explorer_serve.command:add_commands")
