"""The answers of the REST API, as typed dictionaries: the one place that says what is in them.

Views build them, routes document them, the console, the command line and clients read them; mypy holds all of
them to it. Imports neither pydantic nor FastAPI: what a schema says beside the type stands in ``marks``. Bodies
of requests are validated at the edge and live there (``app.api``).
"""
