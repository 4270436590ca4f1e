"""Private helpers: errors, files, locks, archives, privacy, progress, threads, linear algebra."""
