"""The words every other package is written in: integer kinds, errors, and the seams to time, threads and chance."""
