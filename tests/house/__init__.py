"""House tests: what a reviewer would otherwise have to remember.

Each rule is a small function over a tree of sources that returns the offences it found, so that it is tried twice: on
a planted tree, where it must find something, and on Warren itself, where it must not.
"""
