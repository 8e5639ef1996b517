"""How the operator bears many migrations: idle ones, ones whose clusters do not answer, and ones that roll beside them."""
