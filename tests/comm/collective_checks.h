// Every collective against plain arithmetic, for any group: the same checks run over threads and over
// processes. Each rank's input is a function of the rank, so expectations need no communication.
#pragma once

#include <vector>

#include "colonnade/comm/group.h"

namespace colonnade::test {

inline const std::vector<at::ScalarType> kTypes = {at::kDouble, at::kFloat, at::kBFloat16,
                                                   at::kHalf,   at::kLong,  at::kByte};

/// The values of `rank` on test::device(): small numbers with fractions where the type has them, all
/// different.
at::Tensor values(int rank, std::vector<std::int64_t> shape, at::ScalarType type);

/// Runs all checks for `type` with odd and even sizes; reports with EXPECT_*.
void check_collectives(const comm::Group& group, at::ScalarType type);
void check_point_to_point(const comm::Group& group, at::ScalarType type);
void check_texts(const comm::Group& group);

}  // namespace colonnade::test
