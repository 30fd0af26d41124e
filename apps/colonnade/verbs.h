// The verbs of the executable: one file each, which only reads arguments and calls the library. A new verb is
// a file here, its name in CMakeLists.txt, two declarations below and a line in verbs.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/completion.h"

namespace colonnade::app {

/// Arguments after the verb on the command line.
using Arguments = std::vector<std::string>;

/// Runs a verb and returns the exit code; main turns exceptions into messages and exit codes. With `--help`
/// it prints its help on standard output and returns 0.
using Verb = int (*)(const Arguments& arguments);

using Offers = std::vector<config::VerbCompletion>;

struct Entry {
  std::string_view name;
  std::string_view summary;  ///< one line for `colonnade help`
  Verb run;
  Offers (*offers)();  ///< arguments for completion
  bool takes_stop_signals =
      false;  ///< it starts with SIGINT, SIGTERM and SIGHUP blocked, and handles them itself
};

/// All verbs in the order of `colonnade help`.
std::span<const Entry> verbs();

int checkpoint(const Arguments& arguments);
int convert(const Arguments& arguments);
int completion(const Arguments& arguments);
int data(const Arguments& arguments);
int evaluate(const Arguments& arguments);
int generate(const Arguments& arguments);
int help(const Arguments& arguments);
int launch(const Arguments& arguments);
int plan(const Arguments& arguments);
int preprocess(const Arguments& arguments);
int pretrain(const Arguments& arguments);
int tokenizer(const Arguments& arguments);
int verify_layout(const Arguments& arguments);

Offers checkpoint_offers();
Offers convert_offers();
Offers completion_offers();
Offers data_offers();
Offers evaluate_offers();
Offers generate_offers();
Offers help_offers();
Offers launch_offers();
Offers plan_offers();
Offers preprocess_offers();
Offers pretrain_offers();
Offers tokenizer_offers();
Offers verify_layout_offers();

}  // namespace colonnade::app
