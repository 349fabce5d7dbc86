from catalog.store.catalog_store import CatalogStore

__all__ = ["CatalogStore"]
