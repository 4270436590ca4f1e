"""`nerve check`: whether a cohort can be used, what would be dropped and why."""

from nerve.data.quality.order import OrderCheck, check_order
from nerve.data.quality.report import Quality, check_cohort

__all__ = ["OrderCheck", "Quality", "check_cohort", "check_order"]
