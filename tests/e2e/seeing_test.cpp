// Output of real runs: memory and time by phase, and TensorBoard's tags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;

/// A run of two stages: 4 steps with a save every second step, and an evaluation at the end.
struct Trained {
  TempFolder folder;
  Result result = run(launch(
      2, folder.path(),
      small_gpt() + Words{"--pipeline-model-parallel-size", "2", "--train-iters", "4", "--eval-interval", "4",
                          "--eval-iters", "1", "--log-params-norm", "--save", (folder / "run").string()}));
  fs::path run_folder = folder / "run";
};

const Trained& trained() {
  static const Trained one;
  return one;
}

/// The numbers of the report's memory rows, "40.1 kB" as 40100; "-" as 0.
std::vector<std::vector<double>> memory_rows(const std::string& page, const std::string& what) {
  std::vector<std::vector<double>> rows;
  const std::regex row("<td>" + what + "</td>(.*)</tr>");
  const std::regex cell("<td class=\"n\">([0-9.]+|-) ?([kMG]?)B?</td>");
  for (auto r = std::sregex_iterator(page.begin(), page.end(), row); r != std::sregex_iterator(); ++r) {
    const std::string cells = (*r)[1];
    std::vector<double>& numbers = rows.emplace_back();
    for (auto c = std::sregex_iterator(cells.begin(), cells.end(), cell); c != std::sregex_iterator(); ++c) {
      const std::string unit = (*c)[2];
      const double factor = unit == "k" ? 1e3 : unit == "M" ? 1e6 : unit == "G" ? 1e9 : 1;
      numbers.push_back((*c)[1] == "-" ? 0 : std::stod((*c)[1]) * factor);
    }
  }
  return rows;
}

TEST(Seeing, MemoryOfEachRankAndPhase) {
  const auto& [folder, result, run_folder] = trained();
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, testing::ContainsRegex(
                               "memory: rank [01] has the highest peak; start-up [0-9.]+ [kM]B \\(planned"));
  const std::string page = read_text(run_folder / "report.html");
  const auto measured = memory_rows(page, "measured");
  const auto planned = memory_rows(page, "planned");
  ASSERT_EQ(measured.size(), 2U);
  ASSERT_EQ(planned.size(), 2U);
  double most = 0;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(measured[rank].size(), 5U);
    for (const double bytes : measured[rank]) EXPECT_GT(bytes, 1e5) << "every phase has run";
    EXPECT_GT(measured[rank][1], measured[rank][2]) << "activations are freed when the optimizer steps";
    for (std::size_t phase = 0; phase < 3; ++phase)
      EXPECT_NEAR(measured[rank][phase], planned[rank][phase], 0.1 * planned[rank][phase])
          << "rank " << rank << " phase " << phase;
    most = std::max(most, measured[rank][1]);
  }
  double recorded = 0;
  for (const auto& line : metrics(run_folder))
    recorded = std::max(recorded, line.at("peak_memory_bytes").get<double>());
  EXPECT_NEAR(recorded, most, 0.01 * most) << "metrics.jsonl has the maximum over ranks";
}

struct Layout {
  const char* name;
  int world;
  Words flags;
};

const Words kDataRanks{"--hidden-size", "512", "--ffn-hidden-size", "1408", "--seq-length", "64"};
const Words kModelRanks{"--hidden-size", "256", "--ffn-hidden-size", "704", "--seq-length", "256"};

/// Large enough for communication buffers to matter: weights in the first, activations in the second.
std::vector<Layout> layouts() {
  const Words sharded = kDataRanks + Words{"--use-megatron-fsdp"};
  const Words overlapped{"--overlap-grad-reduce", "--overlap-param-gather"};
  const Words experts =
      kModelRanks +
      Words{"--num-experts",     "4", "--expert-model-parallel-size", "2", "--moe-ffn-hidden-size", "704",
            "--moe-router-topk", "2"};
  return {
      {"distributed optimizer", 2, kDataRanks + Words{"--use-distributed-optimizer"}},
      {"distributed optimizer, 3 ranks, overlapped", 3,
       kDataRanks + overlapped + Words{"--use-distributed-optimizer", "--global-batch-size", "6"}},
      {"optim_grads", 2, sharded + Words{"--data-parallel-sharding-strategy", "optim_grads"}},
      {"optim_grads_params", 2, sharded},
      {"optim_grads_params, overlapped", 2, sharded + overlapped},
      {"one order", 2, kDataRanks + Words{"--deterministic-mode"}},
      {"tensor and pipeline ranks", 4,
       kModelRanks + Words{"--tensor-model-parallel-size", "2", "--sequence-parallel",
                           "--pipeline-model-parallel-size", "2"}},
      {"context ranks", 2, kModelRanks + Words{"--context-parallel-size", "2"}},
      {"expert ranks that exchange", 2, experts + Words{"--moe-token-dispatcher-type", "alltoall"}},
      {"expert ranks that gather", 2, experts + Words{"--moe-token-dispatcher-type", "allgather"}},
  };
}

TEST(Seeing, PeaksOfSeveralRanksAreWithinFivePercentOfThePlan) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const TempFolder folder;
    const Result result = run(
        launch(layout.world, folder.path(),
               Words{"pretrain", "gpt", "--config", COLONNADE_RECIPES "/test/gpt_tiny.yaml"} +
                   Words{"--num-attention-heads", "8", "--num-query-groups", "4", "--vocab-size", "4096"} +
                   layout.flags +
                   Words{"--train-iters", "2", "--eval-interval", "2", "--eval-iters", "1", "--save-interval",
                         "10", "--save", (folder / "run").string()}));
    ASSERT_EQ(result.code, 0) << result.text;
    const std::string page = read_text(folder / "run/report.html");
    const auto measured = memory_rows(page, "measured"), planned = memory_rows(page, "planned");
    ASSERT_EQ(measured.size(), static_cast<std::size_t>(layout.world));
    ASSERT_EQ(planned.size(), measured.size());
    for (std::size_t rank = 0; rank < measured.size(); ++rank)
      for (std::size_t phase = 0; phase < 4; ++phase)
        EXPECT_NEAR(measured[rank].at(phase) / planned[rank].at(phase), 1, 0.05)
            << "rank " << rank << " phase " << phase;
  }
}

TEST(Seeing, TensorBoardReadsTheWeightNorm) {
  const std::string python = std::string(COLONNADE_PYTHON_BIN) + "/python";
  ASSERT_EQ(run({python, "-c", "import tensorboard"}).code, 0)
      << "tensorboard must be importable by " << python << "; run `tools/setup.sh test`";
  const auto& [folder, result, run_folder] = trained();
  ASSERT_EQ(result.code, 0) << result.text;
  const Result seen =
      run({python, "-c",
           "import json, sys\n"
           "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
           "a = EventAccumulator(sys.argv[1])\n"
           "a.Reload()\n"
           "tags = ['params-norm', 'params-norm vs samples']\n"
           "print(json.dumps([[[e.step, e.value] for e in a.Scalars(t)] for t in tags]))\n",
           (run_folder / "tensorboard").string()});
  ASSERT_EQ(seen.code, 0) << seen.text;
  const auto tags = nlohmann::json::parse(seen.text.substr(seen.text.find("[[[")));
  const auto lines = metrics(run_folder);
  ASSERT_EQ(lines.size(), 4U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double norm = lines[i].at("params_norm");
    EXPECT_GT(norm, 1);
    EXPECT_EQ(tags[0][i][0], lines[i].at("iteration"));
    EXPECT_EQ(tags[1][i][0], lines[i].at("consumed_samples"));
    for (const auto& tag : tags) EXPECT_NEAR(tag[i][1].get<double>(), norm, 1e-6 * norm);
  }
}

TEST(Seeing, ZerosOfTheGradientAreCounted) {
  const TempFolder folder;
  // Half of the learned positions are never used: 32 rows of 64 zeros, and hardly any others.
  const Result result = run(
      colonnade(small_gpt() + Words{"--max-position-embeddings", "64", "--train-iters", "1", "--eval-iters",
                                    "0", "--log-num-zeros-in-grad", "--save", folder.path().string()}));
  ASSERT_EQ(result.code, 0) << result.text;
  const std::int64_t zeros = metrics(folder.path()).at(0).at("num_zeros");
  EXPECT_GE(zeros, 32 * 64);
  EXPECT_LT(zeros, 32 * 64 + 100);
}

/// Reported times of a run that sleeps half a second at `point`.
nlohmann::json session_of(const std::string& point) {
  const TempFolder folder;
  const Words words = small_gpt() + Words{"--train-iters",   "2",
                                          "--eval-interval", "2",
                                          "--eval-iters",    "1",
                                          "--num-workers",   "0",
                                          "--save",          folder.path().string()};
  const Result result = run(colonnade(words), {{"COLONNADE_FAULT", "at=" + point + " sleep=0.5"}});
  EXPECT_EQ(result.code, 0) << result.text;
  return nlohmann::json::parse(read_text(folder / "sessions.json")).at(0);
}

TEST(Seeing, LoggingLevelHidesNotesAndWarningsButNoLosses) {
  const TempFolder folder;
  const auto text_at = [&](int last, const Words& more) {
    const Result result =
        run(colonnade(small_gpt() +
                      Words{"--train-iters", std::to_string(last), "--eval-interval", "2", "--eval-iters",
                            "1", "--save", folder.path().string(), "--load", folder.path().string()} +
                      more));
    EXPECT_EQ(result.code, 0) << result.text;
    return result.text;
  };
  using testing::AllOf;
  using testing::HasSubstr;
  using testing::Not;
  const auto notes = AllOf(HasSubstr("run folder"), HasSubstr("saved "), HasSubstr("layout: tensor 1"));
  const auto losses = [](int last) {
    const std::string n = std::to_string(last);
    return AllOf(HasSubstr(n + "/" + n + " | loss "), HasSubstr("validation"),
                 HasSubstr("complete after iteration " + n));
  };
  const Words change{"--clip-grad", "0.5"};
  EXPECT_THAT(text_at(2, {}), AllOf(notes, losses(2)));
  EXPECT_THAT(text_at(4, Words{"--logging-level", "20"} + change),
              AllOf(notes, losses(4), HasSubstr("warning: --clip-grad: was 1")));
  const auto hidden = AllOf(Not(HasSubstr("saved ")), Not(HasSubstr("loaded ")), Not(HasSubstr("layout: ")));
  EXPECT_THAT(text_at(6, Words{"--logging-level", "30", "--clip-grad", "0.25"}),
              AllOf(losses(6), hidden, HasSubstr("warning: --clip-grad: was 0.5")));
  EXPECT_THAT(text_at(8, Words{"--logging-level", "40"} + change),
              AllOf(losses(8), hidden, Not(HasSubstr("warning: "))));
  EXPECT_EQ(metrics(folder.path()).size(), 8U);
  const Result wrong =
      run(colonnade(small_gpt() + Words{"--logging-level", "50", "--train-iters", "8", "--load",
                                        folder.path().string(), "--ckpt-step", "77"}));
  EXPECT_EQ(wrong.code, 3) << "errors are always printed";
  EXPECT_THAT(wrong.text, HasSubstr("error: "));
}

TEST(Seeing, TimeIsCountedForItsPhase) {
  for (const auto& [point, phase] :
       std::vector<std::pair<std::string, std::string>>{{"forward", "forward-backward"},
                                                        {"optimizer", "optimizer"},
                                                        {"save-writing", "checkpoint"},
                                                        {"evaluate-begin", "evaluate"}}) {
    const auto session = session_of(point);
    const auto& seconds = session.at("seconds");
    EXPECT_GE(seconds.at(phase), 0.5) << "waits at " << point;
    EXPECT_GT(seconds.at("data"), 0);
    double sum = 0;
    for (const auto& one : seconds) sum += one.get<double>();
    EXPECT_LE(sum, session.at("wall_seconds")) << "each second is counted once";
  }
}

}  // namespace
}  // namespace colonnade::e2e
