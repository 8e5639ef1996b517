"""What the load watches beside its own records: one module and one balance for each subject."""
