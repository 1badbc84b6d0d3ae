"""A session as one HTML page: what stands on it, and how it is drawn. It knows no store."""
