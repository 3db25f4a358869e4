"""Pages, one module a subject: each reads what it shows through the functions of the API and hands it to its template."""
