"""What a person looks at: tables, figures and one page. Made from tables on disk, without torch."""
