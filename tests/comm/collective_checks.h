// Checks every collective of any group against plain arithmetic, over threads and over processes. Inputs are
// functions of the rank, so expected values need no communication.
#pragma once

#include <vector>

#include "colonnade/comm/group.h"

namespace colonnade::test {

inline const std::vector<at::ScalarType> kTypes = {at::kDouble, at::kFloat, at::kBFloat16,
                                                   at::kHalf,   at::kLong,  at::kByte};

/// Distinct small values of `rank` on test::device(), fractional for floating-point types.
at::Tensor values(int rank, std::vector<std::int64_t> shape, at::ScalarType type);

/// Runs all checks for `type` with odd and even sizes; reports with EXPECT_*.
void check_collectives(const comm::Group& group, at::ScalarType type);
void check_point_to_point(const comm::Group& group, at::ScalarType type);
void check_texts(const comm::Group& group);

}  // namespace colonnade::test
