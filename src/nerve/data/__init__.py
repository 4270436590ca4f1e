"""What a cohort is, and how it is made."""
