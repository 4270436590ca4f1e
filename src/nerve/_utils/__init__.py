"""Private helpers of the package: errors, files, archives, progress, linear algebra."""
