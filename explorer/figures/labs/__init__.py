"""Pictures of the labs: pure functions from a lab's result to a plotly figure, a module a lab."""
