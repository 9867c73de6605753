"""The server in front of the engine: HTTP, scheduler, limits, pages. `service.py` runs it; `app.py` has its routes."""
