"""``python -m heron_container``: the first process of a container."""

from heron_container.birth import main

main()
