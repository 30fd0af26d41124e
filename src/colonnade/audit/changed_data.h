// What changed of the data of a run while it stood still.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/audit/ledger.h"
#include "colonnade/job/continued.h"

namespace colonnade::audit {

/// A sentence for each data set of `now` that is not what it was, with all that is known of it and what
/// follows: `tokens` of its splits, since the checkpoint; files that have other bytes than in `maker`, the
/// session that made the checkpoint, are new among its files or gone. Of many files the first four are named.
/// Without `maker` nothing is said of files. A set that is spelled in several ways is one, named by the
/// first.
std::vector<std::string> changed_data(const LedgerLine& now, const std::optional<LedgerLine>& maker,
                                      const std::vector<job::ChangedTokens>& tokens);

}  // namespace colonnade::audit
