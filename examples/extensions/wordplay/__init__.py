"""Extensions of Heronry, one module each: ``docs/extending.md`` goes through them."""
