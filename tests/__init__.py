"""Warren's tests. Folders mirror src/warren; `house` keeps the house rules, `torture` and `mutants` are campaigns."""
