// Holds the precompiled header of src/colonnade/tensor/pch.h.
