// Holds the precompiled header of pch.h.
