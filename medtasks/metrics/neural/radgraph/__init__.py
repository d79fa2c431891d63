"""RadGraph: entities and relations of a report, and how well two reports agree on them."""
