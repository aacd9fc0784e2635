"""The parts that panels are made of, and the core of a panel."""
