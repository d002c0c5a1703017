"""Assembly: where a process decides on directories, settings and concrete classes."""
