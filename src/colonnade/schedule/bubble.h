// Pipeline bubble: the time in which ranks of a pipeline are idle.
#pragma once

#include "colonnade/schedule/program.h"

namespace colonnade::schedule {

/// Idle share of ranks x makespan. With p ranks, m micro-batches, v virtual stages per rank and equal stages,
/// without transfers:
///     GPipe, 1F1B        (p - 1) / (m + p - 1)
///     interleaved 1F1B   (p - 1) / (v m + p - 1)
/// Source: Narayanan et al. 2021, section 2.2.
double bubble_fraction(const Timeline& timeline, int ranks);

}  // namespace colonnade::schedule
