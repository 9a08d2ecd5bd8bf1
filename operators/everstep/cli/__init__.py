"""The ``everstep`` command. Each verb comes from an entry point of the group ``everstep.commands``."""
