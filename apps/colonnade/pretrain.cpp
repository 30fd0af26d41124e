// `colonnade pretrain gpt ...`: trains. One process is one rank.
#include "colonnade/base/error.h"
#include "colonnade/base/stop_signal.h"
#include "colonnade/config/help.h"
#include "colonnade/config/parse.h"
#include "colonnade/job/start.h"
#include "colonnade/tensor/counting_allocator.h"
#include "colonnade/train/loop.h"
#include "verbs.h"

namespace colonnade::app {

int pretrain(const Arguments& arguments) {
  if (const auto text = config::help_request(arguments)) {
    fmt::print("{}", *text);
    return kExitDone;
  }
  StopSignals stop;
  tensor::count_cpu_memory();
  config::Parsed parsed = config::parse_all(arguments);
  if (parsed.file_unread) config::require_none(parsed.faults);
  return train::pretrain(job::start(std::move(parsed.run), plan::Purpose::kTrain, std::move(parsed.faults)),
                         stop);
}

}  // namespace colonnade::app
