"""`dragoman models`: the bundles in a directory, and which of them would not serve."""

from dragoman.service.commands.configuration import Bundles, fail, settings_with


def models(bundles: Bundles = None) -> None:
    """List the bundles without loading them, and say which one serves where two translate the same pair."""
    from rich.console import Console
    from rich.table import Table

    from dragoman.service.bundles.manifest import BundleError, read_bundle
    from dragoman.service.catalog.routes import choose
    from dragoman.service.commands.checkup import find_bundles
    from dragoman.service.commands.evidence_line import behaviour_line, origin_line

    table = Table("name", "version", "precision", "pairs", "size", "path")
    found, broken = [], []
    for path in find_bundles(settings_with(bundles=bundles)):
        try:
            bundle = read_bundle(path, check_hashes=False)
        except BundleError as error:
            broken.append(str(error))
            continue
        found.append(bundle)
        pairs = ", ".join(f"{pair.source}-{pair.target}" for pair in bundle.pairs)
        megabytes = sum(record.bytes for record in bundle.files.values()) / 1e6
        table.add_row(bundle.name, bundle.version, bundle.precision, pairs, f"{megabytes:.1f} MB", str(path))
    console = Console(highlight=False)
    console.print(table if table.rows else "There are no bundles here.")
    for bundle in found:
        if line := behaviour_line(bundle.evidence):
            console.print(f"{bundle.name}: {line}", soft_wrap=True, markup=False)
        if line := origin_line(bundle.training):
            console.print(f"{bundle.name}: {line}", soft_wrap=True, markup=False)
    for shadow in choose(found)[1]:
        console.print(f"Shadowed: {shadow}.", soft_wrap=True, markup=False)
    if broken:
        fail("\n".join(broken))
