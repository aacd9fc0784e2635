"""The kit of the lessons: `live` makes a figure live from any function, `check` checks an
exercise."""
