"""What Tables 1, 2 and 3 of the paper print, cell by cell, as the paper marks it.

A cell is its r and half-width with its marks: b bold, u underlined, s shaded (Tables 1 and 2), † bold with a dagger
(Table 3). "n." is a negative r, "--" not available.
"""

COLUMNS = [("ABCD", "Int."), ("ABCD", "Ext."), ("ABCD", "Total"), ("PNC", "Int."), ("PNC", "Ext."), ("PNC", "p-factor"),
           ("CCNP", "Int."), ("CCNP", "Ext."), ("CCNP", "p-factor")]  # fmt: skip

TABLE_1 = {
    "BrainNetCNN": ".05±.04 .08±.04u .11±.04u  .07±.03 .08±.04 .05±.03  .15±.12u .10±.13u .01±.12",
    "BrainGNN": ".05±.04 .08±.05u .06±.04  .08±.04 .04±.04 .06±.04  .17±.13b .16±.16 .04±.10",
    "BrainNetTF": "-- -- --  .08±.04 .07±.05 .05±.04  .01±.09 .21±.14 .05±.09",
    "GraphMAE": ".06±.05u .06±.04 .06±.04  .09±.05u .08±.05 .09±.05  .07±.16 .22±.16u .12±.13u",
    "GATE": "-- -- --  .07±.06 .08±.05 .09±.04  .04±.09 .14±.14 .11±.08",
    "BrainGSLs": ".04±.05 .05±.05 .05±.05  .05±.05 .08±.06 .04±.05  n. .22±.15u n.",
    "BrainMass": ".06±.05u .08±.05u .01±.04  .03±.06 .09±.06u .10±.05u  .04±.13 .14±.14 .13±.16b",
    "NERVE": ".11±.06bs .09±.05b .13±.04b  .14±.05bs .13±.05bs .12±.05b  .08±.14 .33±.14bs .13±.15b",
}
TABLE_2 = {
    "shared linear": ".06±.06u .06±.05 .02±.05  .10±.05u .11±.05 .10±.06u  .06±.10u .31±.15u .12±.15u",
    "specific linear": ".03±.08 .08±.05u .06±.05u  .14±.06b .12±.05u .09±.06  .01±.11 .03±.13 n.",
    "bilinear": ".11±.09b .09±.05b .13±.04b  .14±.05b .13±.05b .12±.05b  .08±.14b .33±.14b .13±.15b",
}
TABLE_3 = {
    "Permutation": ".04±.02 .07±.02 .07±.03  .09±.02 .10±.03 .09±.01  -.04±.09 .19±.05 .00±.06",
    "16 × 16 shared": ".02 .02 .05  .05 .09 .11†  -.03 .11 .01",
    "16 × 16 specific": ".02 .10† .06  .04 .09 .08  -.02 .25† .11†",
    "16 × 16 bilinear": ".01 .08 .06  .05 .10 .08  .00 .11 -.05",
    "7-network": ".05 .09† .09†  .07 .10 .07  -.01 .22 .07†",
    "17-network": ".11† .09† .13†  .14† .13† .12†  .08† .33† .13†",
}

# the paper underlines .10 in a column whose second best is .22, underlined too
SLIPS = {("BrainNetCNN", ("CCNP", "Ext."))}
