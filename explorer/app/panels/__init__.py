"""One file a panel; `dashboard.PANELS` has one row for each."""
