"""The test rig of the protocols: the product's own controllers, agents and store servers in one process and in
virtual time, from a seed. No part of what is installed; ``python -m simulator`` runs it from a checkout."""
