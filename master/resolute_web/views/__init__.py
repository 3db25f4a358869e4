"""Pages, one module a subject: each reads its data through the functions of the API and passes it to its template."""
