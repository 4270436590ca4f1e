"""Long stress tests (`make torture`) of the promises of docs/reliability.md."""
