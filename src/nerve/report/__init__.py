"""What readers look at: tables, figures and one page. Made from tables on disk, without torch."""
