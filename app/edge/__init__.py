"""The HTTP edge: which requests come in at all, how large and how slow they may be, and the headers of all
answers. ``request_rules`` and ``trust`` decide and are pure; ``middleware``, ``protocols`` and
``uvicorn_server`` act."""
