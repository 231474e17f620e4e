"""Extensions of Heronry, one in each module. ``docs/how-to/extending.md`` explains them."""
