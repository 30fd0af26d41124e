// Changes of a run's data since its last session.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "colonnade/audit/ledger.h"
#include "colonnade/job/resume_policy.h"

namespace colonnade::audit {

/// One sentence for each dataset of `now` that has changed, with all known changes and their effect: `tokens`
/// of its splits since the checkpoint; files with other contents than in `maker`, the session that made the
/// checkpoint, new files and removed ones. Of many files the first four are named. Without `maker` files are
/// not compared. A dataset with several spellings of its path is reported once, under the first.
std::vector<std::string> changed_data(const LedgerLine& now, const std::optional<LedgerLine>& maker,
                                      const std::vector<job::ChangedTokens>& tokens);

}  // namespace colonnade::audit
