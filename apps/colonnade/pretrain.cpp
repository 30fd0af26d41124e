// `colonnade pretrain gpt ...`: trains. One process is one rank.
#include "colonnade/base/error.h"
#include "colonnade/base/stop_signal.h"
#include "colonnade/config/help.h"
#include "colonnade/job/start.h"
#include "colonnade/tensor/counting_allocator.h"
#include "colonnade/train/loop.h"
#include "extras.h"
#include "verbs.h"

namespace colonnade::app {

Offers pretrain_offers() { return {{"pretrain", "", {}, config::Use::kTrain}}; }

int pretrain(const Arguments& arguments) {
  if (const auto asked = config::help_request(arguments)) {
    fmt::print("{}", !asked->flag.empty() ? config::flag_help(asked->flag)
                     : asked->all         ? config::full_help()
                                          : config::short_help());
    return kExitDone;
  }
  StopSignals stop;
  tensor::count_cpu_memory();
  config::Parsed parsed = read_settings(arguments);
  return train::pretrain(job::start(std::move(parsed.run), rules::Purpose::kTrain, std::move(parsed.faults)),
                         stop);
}

}  // namespace colonnade::app
