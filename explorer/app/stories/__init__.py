"""Stories: short tours of the page, a link and a sentence a step."""
