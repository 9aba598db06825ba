"""The published results: `rows.yaml` lists the rows, `computed/` holds what each seed computed."""
