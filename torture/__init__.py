"""`make torture`: the promises of docs/reliability.md, each put to the test for longer than CI has time for."""
