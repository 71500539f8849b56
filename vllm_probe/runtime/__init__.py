"""The bundled engine: scheduler, models, executor, engine and OpenAI-compatible server."""
