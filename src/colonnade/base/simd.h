// COL_SIMD: 1 lets our own code dispatch to AVX2 and AVX-512 at run time; 0 keeps it at baseline x86-64
// (-DCOLONNADE_SIMD=OFF; CI uses it to prove that results do not depend on the CPU). Included by sources
// only.
#pragma once

#ifndef COL_SIMD
#define COL_SIMD 1
#endif
