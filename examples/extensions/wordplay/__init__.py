"""Extensions of Heronry, one module each: ``docs/how-to/extending.md`` goes through them."""
