"""Several sources: the first that says something of a thing is right."""

from __future__ import annotations

from warren.config.options import OptionValues, merged


def test_the_first_source_with_a_value_counts() -> None:
    first = OptionValues(port=1, default_permissions_read="")
    second = OptionValues(port=2, host="h", default_permissions_read=".*")
    assert merged(first, second) == OptionValues(port=1, host="h", default_permissions_read="")
    assert merged(OptionValues(), OptionValues()) == OptionValues()


def test_zero_empty_and_false_say_something() -> None:
    given = OptionValues(port=0, log_file="", no_data_dir=False, loopback_users=())
    assert merged(given, OptionValues(port=1, log_file="x", no_data_dir=True, loopback_users=("guest",))) == given
