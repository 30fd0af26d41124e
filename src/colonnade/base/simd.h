// COL_SIMD: 1 where our own code may choose AVX2 and AVX-512 at run time, 0 where it stays at baseline x86-64
// (-DCOLONNADE_SIMD=OFF, by which CI proves that results do not depend on the processor). For sources only.
#pragma once

#ifndef COL_SIMD
#define COL_SIMD 1
#endif
