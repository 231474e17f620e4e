"""Entry point of the first process of a container."""

from heron_container.startup import main

main()
