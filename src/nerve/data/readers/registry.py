"""All readers by name."""

from __future__ import annotations

from nerve._utils.errors import one_of
from nerve.data.readers.abide import ABIDE
from nerve.data.readers.afni import AFNI
from nerve.data.readers.base import Reader
from nerve.data.readers.bep017 import BEP017
from nerve.data.readers.cbig import CBIG
from nerve.data.readers.cifti import CIFTI
from nerve.data.readers.conn import CONN
from nerve.data.readers.cpac import CPAC
from nerve.data.readers.dsi_studio import DSIStudio
from nerve.data.readers.edges import Edges
from nerve.data.readers.fsl_tracts import FSLTracts
from nerve.data.readers.gift import GIFT
from nerve.data.readers.gifti import GIFTI
from nerve.data.readers.giga_h5 import GigaH5
from nerve.data.readers.long_series import LongSeries
from nerve.data.readers.nifti import NIfTI
from nerve.data.readers.plain import Plain
from nerve.data.readers.qsirecon import QSIRecon
from nerve.data.readers.tvb import TVB
from nerve.data.readers.ukb import UKB
from nerve.data.readers.xcpd import XCPD
from nerve.data.readers.zipped import Zipped

# Name (that of the module too) → class. The more specific readers come first: where two of them
# find as many scans, `--format auto` takes the first.
READERS: dict[str, type[Reader]] = {
    "xcpd": XCPD,
    "bep017": BEP017,
    "cpac": CPAC,
    "cbig": CBIG,
    "abide": ABIDE,
    "conn": CONN,
    "afni": AFNI,
    "gifti": GIFTI,
    "dsi_studio": DSIStudio,
    "qsirecon": QSIRecon,
    "fsl_tracts": FSLTracts,
    "tvb": TVB,
    "gift": GIFT,
    "giga_h5": GigaH5,
    "cifti": CIFTI,
    "nifti": NIfTI,
    "ukb": UKB,
    "long_series": LongSeries,
    "edges": Edges,
    "plain": Plain,
    "zipped": Zipped,
}


def get_reader(name: str) -> Reader:
    """Make the reader of a name.

    Parameters
    ----------
    name : str
        A key of `READERS`.

    Returns
    -------
    Reader
    """
    reader_class = READERS[one_of("format", name, list(READERS))]
    return reader_class()
