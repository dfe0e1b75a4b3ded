"""Rudman and Eickhoff: IsoScore* on small samples, and I-STAR."""
