"""Stand-ins for the machine: disk, power, time, chance and threads, each from a seed. Shipped: users test with them."""
