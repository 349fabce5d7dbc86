"""The HTTP edge: which requests come in at all, how large and how slow they may be, and the headers of all
answers. ``rules`` and ``trust`` decide and are pure; ``middleware`` and ``http_protocol`` act."""
